#!/usr/bin/env bash
# app/setup.sh [OPTIONS] [TARGET...]
# Installs what bert needs and builds build/bert and build/bertrun. Run again, it does only what is not done yet.
#
#   --cpu, --cuda  build without or with CUDA; default: with CUDA where an NVIDIA driver is loaded
#   --user         without root: cmake, ninja and libraries go into the cache
#   --jargon       also fetch the Jargon File, the quick start's text
#   --build DIR    build there instead of in build/
#   -DNAME=VALUE   a setting for CMake
#   TARGET...      build these instead of bert and bertrun
#
# LibTorch 2.11.0 is downloaded into ${XDG_CACHE_HOME:-~/.cache}/bert (545 MB; with CUDA 2.6 GB), unless CMAKE_PREFIX_PATH names
# a LibTorch >= 2.8. Proxies and the package index are taken from the environment and from pip's configuration.
# Tested on Debian 12. The same package names hold on newer Debian and on Ubuntu 22.04 and 24.04, where this is untested.
# Exit codes: 0 ok; 2 usage; 65 a download is damaged; 66 something is missing; 69 network; 70 build failed; 71 memory; 74 disk.
#
# Example: app/setup.sh --user && build/bert version
set -euo pipefail

usage=2 missing=66 network=69 internal=70 memory=71 io=74
say() { echo "setup: $*" >&2; }
die() { say "${*:2}"; exit "$1"; }

root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
cuda=auto user= jargon= build=build settings=() targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) cuda=OFF ;;
    --cuda) cuda=ON ;;
    --user) user=1 ;;
    --jargon) jargon=1 ;;
    --build) [ $# -gt 1 ] || die $usage "--build wants a directory"; build=$2; shift ;;
    -DCMAKE_PREFIX_PATH=*) export CMAKE_PREFIX_PATH=${1#*=} ;;
    -D*) settings+=("$1") ;;
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
    -*) die $usage "unknown option $1; see app/setup.sh --help" ;;
    *) targets+=("$1") ;;
  esac
  shift
done
case $build in /*) ;; *) build=$root/$build ;; esac
[ -n "${HOME:-}" ] || die $missing "HOME is not set; set it to a directory that you can write to"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bert
libtorch=$cache/libtorch-2.11.0
debs=$cache/debs
tools=$cache/tools
changed=

# ---- the machine ----
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die $missing "bert needs Linux on x86-64; this is $(uname -s) on $(uname -m)"
grep -qw avx2 /proc/cpuinfo || die $missing "bert needs a processor with AVX2; this one has none"

if [ $cuda = auto ]; then
  cuda=OFF
  if [ -r /proc/driver/nvidia/version ]; then
    driver=$(sed -nE '1s/.* ([0-9]+)\.[0-9.]+ .*/\1/p' /proc/driver/nvidia/version)
    if [ "${driver:-580}" -ge 580 ]; then
      cuda=ON
    else
      say "the NVIDIA driver is version $driver, and CUDA 13 needs 580 or newer: building for the CPU (--cuda builds with CUDA all the same)"
    fi
  fi
fi
mkdir -p "$cache" "$build" 2>/dev/null || die $io "cannot write to $cache and $build; set XDG_CACHE_HOME, or --build, to a directory that you can write to"

free_mb() { df -Pm "$1" | awk 'NR == 2 {print $4}'; }
need_disk() {  # need_disk DIRECTORY MB WHAT-FOR
  [ "$(free_mb "$1")" -ge "$2" ] || die $io "$3 needs $2 MB of disk in $1, and $(free_mb "$1") MB are free"
}
available_mb() {  # memory that a new program can have, within the container's limit
  local free limit used
  free=$(awk '/^(MemAvailable|SwapFree):/ {kb += $2} END {print int(kb / 1024)}' /proc/meminfo)
  if limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) && [ "$limit" != max ]; then
    used=$(cat /sys/fs/cgroup/memory.current)
    limit=$(((limit - used) / 1048576))
    [ $limit -ge "$free" ] || free=$limit
  fi
  echo "$free"
}

# Two set-ups at once would unpack into the same place: the second waits.
exec 9>>"$cache/setup.lock"
if ! flock -n 9; then
  say "another set-up is running ($(cat "$cache/setup.lock")); waiting for it"
  flock 9
fi
echo "process $$ in $root since $(date '+%F %T')" >"$cache/setup.lock"

# ---- packages ----
libraries="nlohmann-json3-dev libfmt-dev libcli11-dev libsentencepiece-dev libutf8proc-dev libxxhash-dev libgloo-dev catch2 libbenchmark-dev"

cmake_works() {
  local version
  version=$("$1" --version 2>/dev/null | awk 'NR == 1 {print $3}')
  [ -n "$version" ] && [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" = 3.25 ]
}
lists_are_there() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }
download_mb() {  # of an apt-get install with these arguments
  apt-get install -y --no-install-recommends --print-uris "$@" 2>/dev/null | awk '/^\x27/ {bytes += $3} END {print int(bytes / 1e6) + 1}'
}
install_as_root() {
  export DEBIAN_FRONTEND=noninteractive
  lists_are_there || { say "reading the package lists"; apt-get update -qq || die $network "apt-get update failed; check the network"; }
  say "installing with apt-get ($(download_mb "$@") MB to download): $*"
  if ! apt-get install -y -qq --no-install-recommends "$@" >"$cache/apt.log" 2>&1; then
    apt-get update -qq >>"$cache/apt.log" 2>&1 || true  # the lists may name versions that are gone
    apt-get install -y -qq --no-install-recommends "$@" >>"$cache/apt.log" 2>&1 ||
      die $network "apt-get could not install them: $(grep -E '^E:' "$cache/apt.log" | tail -n 1) (all in $cache/apt.log)"
  fi
}
own_apt() {  # apt-get that keeps its lists in the cache: they can be read without root, but not refreshed
  mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
  apt-get -qq -o Dir::State::Lists="$cache/apt/lists" -o Dir::Cache="$cache/apt" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@"
}
unpack_debs() {  # unpack_debs DIRECTORY PACKAGE...: the packages themselves, without what they depend on
  local into=$1 download=$cache/apt/debs
  shift
  mkdir -p "$into" "$download"
  (cd "$download" && own_apt download "$@") >"$cache/apt.log" 2>&1 ||
    die $network "apt-get could not download $*: $(grep -E '^E:' "$cache/apt.log" | tail -n 1)"
  for deb in "$download"/*.deb; do dpkg -x "$deb" "$into"; done
  rm -rf "$cache/apt"
}
refresh_own_lists() {
  say "reading the package lists"
  own_apt update >"$cache/apt.log" 2>&1 || die $network "apt-get update failed: $(grep -E '^[EW]:' "$cache/apt.log" | tail -n 1)"
}
install_as_user() {
  refresh_own_lists
  local all
  all=$(own_apt install -s --no-install-recommends "$@" 2>"$cache/apt.log" | awk '$1 == "Inst" {print $2}')
  [ -n "$all" ] || die $missing "apt-get cannot resolve $*: $(tail -n 1 "$cache/apt.log")"
  say "unpacking $(echo $all | wc -w) packages into $debs: $*"
  rm -rf "$debs"
  unpack_debs "$debs" $all
  # These files name /usr; here they lie elsewhere.
  find "$debs/usr" -name '*.pc' -exec sed -i "s#=/usr#=$debs/usr#" {} +
  if [[ " $* " == *" pkg-config "* ]]; then
    local program
    program=$(find "$debs/usr/bin" -type f \( -name pkgconf -o -name '*pkg-config' \) | head -n 1)
    mkdir -p "$debs/bin"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s/usr/lib/x86_64-linux-gnu exec %s "$@"\n' "$debs" "$program" >"$debs/bin/pkg-config"
    chmod +x "$debs/bin/pkg-config"
  fi
  printf '%s\n' "$@" >"$debs/packages"
}
use_debs() {
  [ ! -x "$debs/bin/pkg-config" ] || export PKG_CONFIG=$debs/bin/pkg-config
  export PKG_CONFIG_PATH=$debs/usr/lib/x86_64-linux-gnu/pkgconfig:$debs/usr/share/pkgconfig:/usr/lib/x86_64-linux-gnu/pkgconfig:/usr/share/pkgconfig
  export CMAKE_PREFIX_PATH=$debs/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  # With old-style rpaths a library finds its own libraries there too.
  local linker="-Wl,--disable-new-dtags -Wl,-rpath,$debs/usr/lib/x86_64-linux-gnu -L$debs/usr/lib/x86_64-linux-gnu"
  settings+=("-DCMAKE_CXX_FLAGS=-isystem $debs/usr/include" "-DCMAKE_EXE_LINKER_FLAGS=$linker" "-DCMAKE_SHARED_LINKER_FLAGS=$linker")
}
on_debian() { command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; }

lacking=()  # Debian packages
has_cmake=1
command -v g++ >/dev/null || lacking+=(g++)
command -v pkg-config >/dev/null || lacking+=(pkg-config)
if ! { cmake_works cmake && command -v ninja >/dev/null; }; then has_cmake=; fi
if on_debian; then
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $libraries 2>/dev/null || true)
  for package in $libraries; do grep -qx "installed $package" <<<"$installed" || lacking+=("$package"); done
elif [ ${#lacking[@]} -gt 0 ] || [ -z "$has_cmake" ]; then
  [ -n "$has_cmake" ] || lacking+=("cmake >= 3.25" ninja)
  die $missing "this is neither Debian nor Ubuntu, and there is no ${lacking[*]}; install them and what Debian calls $libraries"
fi
given_torch=
IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
for prefix in "${prefixes[@]}"; do
  for place in "$prefix" "$prefix/../.."; do [ ! -f "$place/include/torch/script.h" ] || given_torch=$prefix; done
done
toolkit=  # a CUDA compiler of the machine's own
for place in "${CUDA_PATH:-}" "${CUDA_HOME:-}" /usr/local/cuda; do
  [ -n "$toolkit" ] || [ ! -x "$place/bin/nvcc" ] || ! "$place/bin/nvcc" --version | grep -q 'release 13' || toolkit=$place
done
groups=cpu
if [ $cuda = ON ]; then groups="cpu cuda"; [ -n "$toolkit" ] || groups+=" nvcc"; fi
needs_python=
wheels_are_there() {  # wheels_are_there DIRECTORY GROUP...: needs no Python
  local directory=$1 group file
  shift
  while read -r group file _; do
    [[ " $* " != *" $group "* ]] || [ -e "$directory/installed/$file" ] || return 1
  done < <(sed -n '/^WHEELS/,/^"""/p' "$root/app/wheels.py" | grep '\.whl ')
}
if [ -z "$given_torch" ] && ! wheels_are_there "$libtorch" $groups; then needs_python=1; fi

if [ "$(id -u)" -eq 0 ] && [ -z "$user" ] && on_debian; then
  [ -n "$has_cmake" ] || lacking+=(cmake ninja-build)
  if [ -n "$needs_python" ] && ! command -v python3 >/dev/null; then lacking+=(python3); fi
  if [ ${#lacking[@]} -gt 0 ]; then
    need_disk / 1000 "installing packages"
    command -v ccache >/dev/null || lacking+=(ccache)
    install_as_root "${lacking[@]}"
    changed=1
  fi
  if cmake_works cmake; then has_cmake=1; fi  # Ubuntu 22.04 has an older one
else
  to_get=()
  for package in "${lacking[@]}"; do grep -qxF -- "$package" "$debs/packages" 2>/dev/null || to_get+=("$package"); done
  if [ -z "$has_cmake" ] && ! wheels_are_there "$tools" tools; then to_get+=(cmake ninja-build) needs_python=1; fi
  if [ -n "$needs_python" ] && ! command -v python3 >/dev/null; then to_get+=(python3); fi
  if [ ${#to_get[@]} -gt 0 ] && [ -z "$user" ]; then
    die $missing "missing packages: ${to_get[*]}. Run \`sudo apt-get install -y ${to_get[*]}\`, or \`app/setup.sh --user\`, which puts all but g++ and python3 into $cache without root"
  fi
  for package in g++ python3; do
    [[ " ${to_get[*]} " != *" $package "* ]] || die $missing "there is no $package, which --user cannot install. Run \`sudo apt-get install -y g++ python3\`"
  done
  if [ ${#lacking[@]} -gt 0 ]; then
    for package in "${lacking[@]}"; do
      if [[ " ${to_get[*]} " == *" $package "* ]]; then
        install_as_user "${lacking[@]}"
        changed=1
        break
      fi
    done
    use_debs
  fi
fi

# ---- wheels ----
fetch() {  # fetch DIRECTORY WHAT GROUP...
  local directory=$1 what=$2 bytes
  shift 2
  bytes=$(python3 "$root/app/wheels.py" size "$directory" "$@") || exit $internal
  say "$what: $((bytes / 1000000)) MB to download into $cache"
  python3 "$root/app/wheels.py" install "$directory" "$@" || exit $?
  changed=1
}
if [ -z "$has_cmake" ]; then
  wheels_are_there "$tools" tools || fetch "$tools" "cmake and ninja" tools
  export PATH=$tools/bin:$tools/cmake/data/bin:$PATH
fi
if [ -n "$given_torch" ]; then
  say "using the LibTorch that CMAKE_PREFIX_PATH names in $given_torch"
elif [ -n "$needs_python" ] && ! wheels_are_there "$libtorch" $groups; then
  if [ $cuda = ON ]; then need_disk "$cache" 9000 "LibTorch with CUDA"; else need_disk "$cache" 3000 "LibTorch"; fi
  fetch "$libtorch" "LibTorch 2.11.0" $groups
fi
if [ -n "$jargon" ] && [ ! -e /usr/share/dictd/jargon.dict.dz ] && [ ! -e "$cache/jargon/usr/share/dictd/jargon.dict.dz" ]; then
  on_debian || die $missing "the Jargon File comes from Debian's package dict-jargon, and this is neither Debian nor Ubuntu; give a text file of yours"
  refresh_own_lists
  say "fetching the Jargon File (0.6 MB)"
  unpack_debs "$cache/jargon" dict-jargon
  changed=1
fi

# ---- build ----
settings+=("-DBERT_CUDA=$cuda")
if [ $cuda = ON ]; then
  [ -n "$toolkit" ] || toolkit=$libtorch/nvidia/cu13
  settings+=("-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" "-DCUDAToolkit_ROOT=$toolkit")
fi
jobs=$(nproc)
free=$(available_mb)
[ "$free" -ge 1500 ] || die $memory "a compiler run needs 2 GB of memory, and $free MB are free"
[ $jobs -le $((free / 2000)) ] || jobs=$((free / 2000))
[ $jobs -ge 1 ] || jobs=1

wanted=$(printf '%s\n' "${settings[@]}" "LibTorch=${given_torch:-$libtorch}" "PATH of cmake=$(command -v cmake)")
if [ ! -e "$build/build.ninja" ] || [ "$(cat "$build/setup-settings" 2>/dev/null)" != "$wanted" ]; then
  rm -f "$build/setup-settings"
  say "configuring $build"
  cmake --fresh -S "$root" -B "$build" -G Ninja "${settings[@]}" >"$build/configure.log" 2>&1 ||
    die $internal "configuring failed: $(grep -A 3 -m 1 'CMake Error' "$build/configure.log" | sed 1d | xargs) (all in $build/configure.log)"
  echo "$wanted" >"$build/setup-settings"
  changed=1
fi
if ! work=$(ninja -C "$build" -n "${targets[@]}" 2>&1); then die $internal "ninja: $(tail -n 1 <<<"$work")"; fi
if [[ "$work" != *"no work to do"* ]]; then
  need_disk "$build" 1000 "building"
  say "building with $jobs jobs"
  ninja -C "$build" -j "$jobs" "${targets[@]}" >&2 || die $internal "the build failed; the first error is above"
  changed=1
fi
if [ -n "$changed" ]; then say "done: $build"; else say "nothing to do: $build is up to date"; fi
