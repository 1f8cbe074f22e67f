#!/usr/bin/env bash
# app/setup.sh [OPTIONS] [TARGET...]
# Installs the requirements and builds build/bert and build/bertrun. A second run does only the steps that are not done yet.
#
#   --cpu, --cuda  build without or with CUDA; default: with CUDA if an NVIDIA driver is loaded
#   --user         without root: cmake, ninja and libraries go into the cache
#   --jargon       also fetch the Jargon File, the quick start's text
#   --arrow        also fetch Arrow (55 MB), for Parquet and Arrow files of examples
#   --nvcc         also fetch nvcc (102 MB) and the headers of CUDA's libraries (1 MB) if they are not there, to check the kernels and to
#                  build a CUDA device of host memory; continue if the download fails
#   --build DIR    build in DIR instead of in build/
#   --prefix DIR   then install into DIR, with LibTorch, for every user of the machine: DIR/bin/bert, DIR/lib/libbert.so
#   --package [DIR|FILE]  then make an archive that runs on machines without a compiler: FILE.tar.gz, FILE.tar.zst or FILE.deb, by default
#                  bert-VERSION-linux-x86_64.tar.gz in DIR or in the build directory. Without CUDA, unless --cuda is given
#   -DNAME=VALUE   a setting for CMake
#   TARGET...      build these targets instead of bert and bertrun
#
# LibTorch 2.11.0 is downloaded into ${XDG_CACHE_HOME:-~/.cache}/bert (543 MB; with CUDA 2.6 GB), unless CMAKE_PREFIX_PATH names
# a LibTorch >= 2.8. A relative XDG_CACHE_HOME is ignored, as the XDG specification demands. Proxies and the package index come
# from the environment and from pip's configuration.
#
#   release        g++   cmake            Catch2   the packages below
#   Debian 12      12.2  3.25             2.13     tested
#   Debian 13      14.2  3.31             3.7      same names, untested
#   Ubuntu 22.04   11.4  3.31 from PyPI   2.13     same names, untested
#   Ubuntu 24.04   13.2  3.28             3.4      same names, untested
#
# Exit codes: 0 ok; 2 usage; 65 a download is damaged; 66 something is missing; 69 network; 70 build failed; 71 memory; 74 disk;
# 78 pip's configuration is unusable.
#
# Example: app/setup.sh --user && build/bert doctor
set -euo pipefail

usage=2 missing=66 network=69 internal=70 memory=71 io=74
say() { echo "setup: $*" >&2; }
die() { say "${*:2}"; exit "$1"; }

root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
cuda=auto user= jargon= want_arrow= want_nvcc= prefix= archive= build=$root/build settings=() targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) cuda=OFF ;;
    --cuda) cuda=ON ;;
    --user) user=1 ;;
    --jargon) jargon=1 ;;
    --arrow) want_arrow=1 ;;
    --nvcc) want_nvcc=1 ;;
    --build) [ $# -gt 1 ] || die $usage "--build wants a directory"; build=$(realpath -m -- "$2"); shift ;;
    --prefix) [ $# -gt 1 ] || die $usage "--prefix wants a directory"; prefix=$(realpath -m -- "$2"); shift ;;
    --package)
      archive=-
      if [ $# -gt 1 ] && [[ "$2" != -* ]]; then archive=$(realpath -m -- "$2"); shift; fi
      ;;
    -DCMAKE_PREFIX_PATH=*) CMAKE_PREFIX_PATH=${1#*=}; export CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH//;/:} ;;
    -D*) settings+=("$1") ;;
    -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
    -*) die $usage "unknown option $1; see app/setup.sh --help" ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[ -z "$prefix$archive" ] || [ ${#targets[@]} -eq 0 ] || targets+=(all)  # an installation needs both programs
case ${XDG_CACHE_HOME:-/} in
  /*) ;;
  *) say "XDG_CACHE_HOME is ignored: $XDG_CACHE_HOME is no absolute path; using ~/.cache"; unset XDG_CACHE_HOME ;;
esac
[ -n "${HOME:-}" ] || die $missing "HOME is not set; set it to a directory that you can write to"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bert
libtorch=$cache/libtorch-2.11.0
debs=$cache/debs
tools=$cache/tools
arrow=$cache/arrow-26.0.1
changed=

# ---- the machine ----
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die $missing "bert needs Linux on x86-64; this is $(uname -s) on $(uname -m)"
grep -qw avx2 /proc/cpuinfo || die $missing "bert needs a processor with AVX2; this one has none"

if [ -n "$archive" ]; then
  [ -z "$user" ] || die $usage "--package takes libraries and licences from the packages that dpkg has installed, and --user installs none"
  command -v dpkg-query >/dev/null || die $missing "--package takes libraries and licences from Debian's packages, and this is neither Debian nor Ubuntu"
  [ $cuda != auto ] || cuda=OFF
  release=bert-$(sed -nE 's/^project\(bert VERSION ([0-9.]+).*/\1/p' "$root/CMakeLists.txt")-linux-x86_64
  [ $cuda = OFF ] || release+=-cuda
  [ "$archive" != - ] || archive=$build
  case $archive in
    *.tar.gz | *.tar.zst | *.deb) ;;
    *) archive=$archive/$release.tar.gz ;;
  esac
  mkdir -p "$(dirname "$archive")" 2>/dev/null && [ -w "$(dirname "$archive")" ] ||
    die $io "cannot write to $(dirname "$archive"); name a directory that you can write to with --package"
fi
if [ $cuda = auto ]; then
  cuda=OFF
  if [ -r /proc/driver/nvidia/version ] || [ -e /dev/nvidiactl ]; then  # some sandboxes have only the second file
    driver=$(sed -nE '1s/.* ([0-9]+)\.[0-9.]+ .*/\1/p' /proc/driver/nvidia/version 2>/dev/null || true)
    if [ "${driver:-580}" -ge 580 ]; then
      cuda=ON
    else
      say "the NVIDIA driver is version $driver, and CUDA 13 needs 580 or newer: building for the CPU (--cuda builds with CUDA all the same)"
    fi
  fi
fi
mkdir -p "$cache" "$build" 2>/dev/null || die $io "cannot write to $cache and $build; set XDG_CACHE_HOME, or --build, to a directory that you can write to"

if [ -n "$prefix" ]; then
  parent=$prefix  # or the nearest directory above it that is there
  until [ -e "$parent" ]; do parent=$(dirname "$parent"); done
  [ -d "$parent" ] && [ -w "$parent" ] || die $io "cannot write to $parent; name a directory that you can write to with --prefix, or run this as its owner"
fi

free_mb() { df -Pm "$1" | awk 'NR == 2 {print $4}'; }
need_disk() {  # need_disk DIRECTORY MB WHAT-FOR
  [ "$(free_mb "$1")" -ge "$2" ] || die $io "$3 needs $2 MB of disk in $1, and $(free_mb "$1") MB are free"
}
available_mb() {  # memory for a new program, within the container's limit (cgroups 2 and 1)
  local free limit used
  free=$(awk '/^(MemAvailable|SwapFree):/ {kb += $2} END {print int(kb / 1024)}' /proc/meminfo)
  for limit in memory.max memory/memory.limit_in_bytes; do
    used=/sys/fs/cgroup/memory.current
    [ $limit = memory.max ] || used=/sys/fs/cgroup/memory/memory.usage_in_bytes
    limit=$(cat /sys/fs/cgroup/$limit 2>/dev/null) || continue
    [ "$limit" != max ] || continue
    limit=$(((limit - $(cat $used)) / 1048576))
    [ "$limit" -ge "$free" ] || free=$limit
  done
  echo "$free"
}

# Two locks: one on this build directory, held until the end, and one on the cache (downloads and packages), held during installation. So
# two checkouts can build at the same time, and two set-ups of one directory wait for each other. Processes of a killed set-up keep its lock
# until they end.
lock() {  # lock DESCRIPTOR FILE WHERE
  if ! flock -n "$1"; then
    say "another set-up is at work in $3 ($(cat "$2")); waiting for it"
    flock "$1"
  fi
  echo "process $$ in $root since $(date '+%F %T')" >"$2"
}
exec 8>>"$build/setup.lock"
lock 8 "$build/setup.lock" "$build"

# ---- the installed parts ----
libraries="nlohmann-json3-dev libfmt-dev libcli11-dev libsentencepiece-dev libutf8proc-dev libxxhash-dev zlib1g-dev libssl-dev libcurl4-openssl-dev libexpat1-dev libbz2-dev liblzma-dev libzstd-dev libzip-dev libuchardet-dev libsnappy-dev libhdf5-dev libboost-dev libgloo-dev catch2"
certificates=/etc/ssl/certs/ca-certificates.crt
jargon_file=usr/share/dictd/jargon.dict.dz
on_debian() { command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; }
as_root() { [ "$(id -u)" -eq 0 ] && [ -z "$user" ] && on_debian; }
cmake_works() {
  local version
  version=$("$1" --version 2>/dev/null | awk 'NR == 1 {print $3}')
  [ -n "$version" ] && [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" = 3.25 ]
}
wheels_are_there() {  # wheels_are_there DIRECTORY GROUP...: works without Python
  local directory=$1 group file
  shift
  while read -r group file _; do
    [[ " $* " != *" $group "* ]] || [ -e "$directory/installed/$file" ] || return 1
  done < <(sed -n '/^WHEELS/,/^"""/p' "$root/app/setup/wheels.py" | grep -E '\.(whl|headers) ')
}

torch_version() {  # torch_version DIRECTORY: version of the LibTorch in DIRECTORY, read as app/setup/libtorch.cmake does
  local header=$1/include/torch/headeronly/version.h
  [ -f "$header" ] || header=$1/include/torch/csrc/api/include/torch/version.h  # up to 2.8
  sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' "$header" 2>/dev/null | paste -sd . || true
}
given_torch=
IFS=: read -ra searched <<<"${CMAKE_PREFIX_PATH:-}"
for candidate in "${searched[@]}"; do
  for place in "$candidate" "$candidate/../.."; do
    [ -z "$given_torch" ] && [ -f "$place/include/torch/script.h" ] || continue
    given_torch=$candidate
    version=$(torch_version "$place")
    [ "$(printf '%s\n' 2.8 "${version:-0}" | sort -V | head -n 1)" = 2.8 ] ||
      die $missing "the LibTorch ${version:-of unknown version} in $candidate, which CMAKE_PREFIX_PATH names, is too old: 2.8 or newer is needed. Without it in CMAKE_PREFIX_PATH, 2.11.0 is downloaded"
  done
done
[ -z "$given_torch" ] || [ -z "$archive" ] ||
  die $usage "a package holds the LibTorch of PyPI's wheel, whose licence and record it holds too; remove $given_torch from CMAKE_PREFIX_PATH"
[ -z "${CMAKE_PREFIX_PATH:-}" ] || [ -n "$given_torch" ] ||
  say "CMAKE_PREFIX_PATH ($CMAKE_PREFIX_PATH) holds no LibTorch >= 2.8: the wheel of LibTorch 2.11.0 is used"
toolkit=  # the machine's own CUDA compiler; the cached LibTorch needs CUDA 13
for nvcc in "${CUDA_PATH:-}/bin/nvcc" "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
  [ -z "$toolkit" ] && [ -x "$nvcc" ] || continue
  place=$("$nvcc" --dryrun none.cu 2>&1 | sed -n 's/^#$ TOP=//p' || true)  # because nvcc may be a link or a script
  place=$(realpath -m -- "${place:-$(dirname "$(readlink -f "$nvcc")")/..}")  # nvcc prints nothing without a host compiler
  if [ -n "$given_torch" ] || "$nvcc" --version | grep -q 'release 13'; then toolkit=$place; fi
done
groups=  # groups of wheels that the build needs
[ -n "$given_torch" ] || groups="torch cudart"
if [ $cuda = ON ]; then
  if [ -z "$given_torch" ]; then
    groups+=" cuda"
    [ -n "$toolkit" ] || groups+=" nvcc"
  elif [ -z "$toolkit" ]; then
    die $missing "there is no nvcc. With a LibTorch of your own, install the CUDA toolkit that it was built with, and name it in CUDA_HOME"
  fi
fi

survey() {  # sets lacking (missing packages of the machine) and to_get (missing packages and tools that --user has not unpacked either)
  local package installed
  lacking=() to_get=() has_cmake= needs_python=
  if cmake_works cmake && command -v ninja >/dev/null; then has_cmake=1; fi
  command -v g++ >/dev/null || lacking+=(g++)
  command -v pkg-config >/dev/null || lacking+=(pkg-config)
  [ -z "$archive" ] || command -v patchelf >/dev/null || lacking+=(patchelf)
  if [[ "$archive" == *.zst ]] && ! command -v zstd >/dev/null; then lacking+=(zstd); fi
  if on_debian; then
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $libraries 2>/dev/null || true)
    for package in $libraries; do grep -qx "installed $package" <<<"$installed" || lacking+=("$package"); done
  elif [ ${#lacking[@]} -gt 0 ] || [ -z "$has_cmake" ]; then
    [ -n "$has_cmake" ] || lacking+=("cmake >= 3.25" ninja)
    die $missing "this is neither Debian nor Ubuntu, and there is no ${lacking[*]}; install them and what Debian calls $libraries"
  fi
  wheels_are_there "$libtorch" $groups || needs_python=1
  [ -z "$archive" ] || command -v python3 >/dev/null || needs_python=1
  lacks_arrow=
  if [ -n "$want_arrow" ] && ! wheels_are_there "$arrow" arrow; then lacks_arrow=1 needs_python=1; fi
  if as_root; then
    [ -e $certificates ] || lacking+=(ca-certificates)
    if [ -z "$has_cmake" ]; then  # Ubuntu 22.04's package is too old
      command -v cmake >/dev/null || lacking+=(cmake)
      command -v ninja >/dev/null || lacking+=(ninja-build)
      wheels_are_there "$tools" tools || needs_python=1
    fi
    if [ -n "$needs_python" ] && ! command -v python3 >/dev/null; then lacking+=(python3); fi
    to_get=("${lacking[@]}")
  else
    for package in "${lacking[@]}"; do grep -qxF -- "$package" "$debs/packages" 2>/dev/null || to_get+=("$package"); done
    if [ -z "$has_cmake" ] && ! wheels_are_there "$tools" tools; then to_get+=(cmake ninja-build) needs_python=1; fi
    if [ -n "$needs_python" ] && ! command -v python3 >/dev/null; then to_get+=(python3); fi
  fi
  lacks_jargon=
  if [ -n "$jargon" ] && [ ! -e /$jargon_file ] && [ ! -e "$cache/jargon/$jargon_file" ]; then lacks_jargon=1; fi
  wanted_nvcc=()  # groups of wheels
  [ -z "$want_nvcc" ] || [ -n "$toolkit" ] || wanted_nvcc=(nvcc cudart)
  if [ -n "$want_nvcc" ] && [ -z "$given_torch" ]; then
    for header in cublas_v2 cusparse cusolverDn cudnn nccl; do
      [ -n "$toolkit" ] && [ -e "$toolkit/include/$header.h" ] || [ -e "/usr/include/$header.h" ] || { wanted_nvcc+=(headers); break; }
    done
  fi
  lacks_nvcc=
  if [ ${#wanted_nvcc[@]} -gt 0 ] && ! wheels_are_there "$libtorch" "${wanted_nvcc[@]}"; then lacks_nvcc=1; fi
}

# ---- packages ----
lists_are_there() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }
download_mb() {  # MB that an apt-get install with these arguments downloads
  "$@" -y --print-uris 2>/dev/null | awk '/^\x27/ {bytes += $3} END {print int(bytes / 1e6) + 1}'
}
tell_untested() {
  local name=an\ unknown\ system
  [ ! -r /etc/os-release ] || name=$(. /etc/os-release && echo "$PRETTY_NAME")
  [[ "$name" == "Debian GNU/Linux 12"* ]] || say "this is $name; set-up is tested on Debian 12 only. Package names are the same on Debian 13 and Ubuntu 22.04 and 24.04"
}
install_as_root() {
  export DEBIAN_FRONTEND=noninteractive
  lists_are_there || { say "reading the package lists"; apt-get update -qq || die $network "apt-get update failed; check the network"; }
  say "installing with apt-get ($(download_mb apt-get install --no-install-recommends "$@") MB to download): $*"
  if ! apt-get install -y -qq --no-install-recommends "$@" >"$cache/apt.log" 2>&1; then
    apt-get update -qq >>"$cache/apt.log" 2>&1 || true  # the old lists may name versions that no longer exist
    apt-get install -y -qq --no-install-recommends "$@" >>"$cache/apt.log" 2>&1 ||
      die $network "apt-get could not install them: $(grep -E '^E:' "$cache/apt.log" | tail -n 1) (all in $cache/apt.log)"
  fi
}
own_apt() {  # apt-get with lists in the cache, because without root the system's lists cannot be refreshed
  mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
  apt-get -qq -o Dir::State::Lists="$cache/apt/lists" -o Dir::Cache="$cache/apt" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@"
}
unpack_debs() {  # unpack_debs DIRECTORY PACKAGE...: unpacks the packages without their dependencies
  local into=$1 download=$cache/apt/debs deb
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
  local all program
  refresh_own_lists
  all=$(own_apt install -s --no-install-recommends "$@" 2>"$cache/apt.log" | awk '$1 == "Inst" {print $2}')
  [ -n "$all" ] || die $missing "apt-get cannot resolve $*: $(tail -n 1 "$cache/apt.log")"
  say "unpacking $(echo $all | wc -w) packages ($(download_mb own_apt install --no-install-recommends "$@") MB to download) into $debs: $*"
  unpack_debs "$debs" $all
  # These files name /usr; their prefix is changed to the unpacked tree.
  find "$debs/usr" -name '*.pc' -exec sed -i "s#=/usr#=$debs/usr#; s#-\([IL]\)/usr#-\1$debs/usr#g" {} +
  # A development package's libX.so points to a file beside it. If the machine already has that file, it was not unpacked.
  find "$debs/usr/lib" -xtype l -name '*.so' -printf '%p %l\n' | while read -r link file; do
    [ ! -e "/usr/lib/x86_64-linux-gnu/$file" ] || ln -sfn "/usr/lib/x86_64-linux-gnu/$file" "$link"
  done
  program=$(find "$debs/usr/bin" -type f \( -name pkgconf -o -name '*pkg-config' \) 2>/dev/null | head -n 1)
  if [ -n "$program" ]; then
    mkdir -p "$debs/bin"
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$debs/usr/lib/x86_64-linux-gnu" "$program" >"$debs/bin/pkg-config"
    chmod +x "$debs/bin/pkg-config"
  fi
  printf '%s\n' "$@" >>"$debs/packages"
}
use_debs() {
  [ ! -x "$debs/bin/pkg-config" ] || export PKG_CONFIG=$debs/bin/pkg-config
  export PKG_CONFIG_PATH=$debs/usr/lib/x86_64-linux-gnu/pkgconfig:$debs/usr/share/pkgconfig:/usr/lib/x86_64-linux-gnu/pkgconfig:/usr/share/pkgconfig
  export CMAKE_PREFIX_PATH=$debs/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  # With old-style rpaths a library finds its own libraries there too.
  local linker="-Wl,--disable-new-dtags -Wl,-rpath,'$debs/usr/lib/x86_64-linux-gnu' -L'$debs/usr/lib/x86_64-linux-gnu'"
  settings+=("-DCMAKE_CXX_FLAGS=-isystem '$debs/usr/include' -isystem '$debs/usr/include/x86_64-linux-gnu'" "-DCMAKE_EXE_LINKER_FLAGS=$linker" "-DCMAKE_SHARED_LINKER_FLAGS=$linker")
}
install_packages() {
  local package
  if as_root; then
    need_disk / 1000 "installing packages"
    command -v ccache >/dev/null || to_get+=(ccache)
    install_as_root "${to_get[@]}"
    return
  fi
  if [ -z "$user" ]; then
    die $missing "missing packages: ${to_get[*]}. Run \`sudo apt-get install -y ${to_get[*]}\`, or \`app/setup.sh --user\`, which puts all but g++ and python3 into $cache without root"
  fi
  for package in g++ python3; do
    [[ " ${to_get[*]} " != *" $package "* ]] || die $missing "there is no $package, which --user cannot install. Run \`sudo apt-get install -y g++ python3\`"
  done
  for package in "${lacking[@]}"; do
    if [[ " ${to_get[*]} " == *" $package "* ]]; then
      install_as_user "${lacking[@]}"
      return
    fi
  done
}

# ---- wheels ----
fetch() {  # fetch ACTION DIRECTORY WHAT GROUP...
  local action=$1 directory=$2 what=$3 bytes
  shift 3
  bytes=$(python3 "$root/app/setup/wheels.py" size "$directory" "$@") || return $internal
  say "$what: $((bytes / 1000000)) MB to download into $cache"
  python3 "$root/app/setup/wheels.py" "$action" "$directory" "$@"
}

survey
if [ -n "${to_get[*]}$needs_python$lacks_jargon$lacks_nvcc" ]; then
  tell_untested
  exec 9>>"$cache/setup.lock"
  lock 9 "$cache/setup.lock" "$cache"
  survey  # another set-up may have installed something meanwhile
  if ! wheels_are_there "$libtorch" $groups; then  # the estimate leaves out files that are already downloaded or built
    there=$(($(du -sm "$cache" | cut -f 1) + $(du -sm "$build" | cut -f 1)))
    if [ $cuda = ON ]; then disk=9000; else disk=3000; fi
    need_disk "$cache" $((disk > there ? disk - there : 0)) "set-up (LibTorch and the build)"
  fi
  [ ${#to_get[@]} -eq 0 ] || install_packages
  survey
  if [ -z "$has_cmake" ] && ! wheels_are_there "$tools" tools; then fetch install "$tools" "cmake and ninja" tools || exit $?; fi
  if ! wheels_are_there "$libtorch" $groups; then fetch install "$libtorch" "LibTorch 2.11.0" $groups || exit $?; fi
  if [ -n "$lacks_arrow" ]; then fetch install "$arrow" "Arrow 26.0.1" arrow || exit $?; fi
  if [ -n "$lacks_nvcc" ]; then
    if ! command -v python3 >/dev/null; then
      say "there is neither nvcc nor a python3 to fetch it with: the kernels will not be compiled for the device"
    else
      fetch try "$libtorch" "nvcc and headers, to check the kernels with" "${wanted_nvcc[@]}" ||
        say "without them the kernels will not be compiled for the device, or not run on a device of host memory"
    fi
  fi
  if [ -n "$lacks_jargon" ]; then
    on_debian || die $missing "the Jargon File comes from Debian's package dict-jargon, and this is neither Debian nor Ubuntu; give a text file of yours"
    refresh_own_lists
    say "fetching the Jargon File (0.6 MB)"
    unpack_debs "$cache/jargon" dict-jargon
  fi
  changed=1
  exec 9>&-
fi
if ! as_root && [ ${#lacking[@]} -gt 0 ]; then use_debs; fi
if [ -z "$has_cmake" ]; then export PATH=$tools/bin:$tools/cmake/data/bin:$PATH; fi

# ---- build ----
[ -z "$given_torch" ] || say "using the LibTorch that CMAKE_PREFIX_PATH names in $given_torch"
if [ -z "$toolkit" ] && wheels_are_there "$libtorch" nvcc cudart; then toolkit=$libtorch/nvidia/cu13; fi
settings+=("-DBERT_CUDA=$cuda")
[ -z "$toolkit" ] || settings+=("-DBERT_NVCC=$toolkit/bin/nvcc")
if [ $cuda = ON ]; then settings+=("-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" "-DCUDAToolkit_ROOT=$toolkit"); fi

wanted=$(printf '%s\n' "${settings[@]}" "LibTorch=${given_torch:-$libtorch}" "CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH:-}" "cmake=$(command -v cmake)" "arrow=$(ls "$arrow/installed" 2>/dev/null || true)" "headers=$(ls "$libtorch/installed" 2>/dev/null | grep headers || true)")
if [ ! -e "$build/build.ninja" ] || [ "$(cat "$build/setup-settings" 2>/dev/null)" != "$wanted" ]; then
  rm -f "$build/setup-settings"
  say "configuring $build"
  # Does the same as --fresh, but keeps the precompiled header. Without it, all files that use it would be compiled again.
  rm -rf "$build/CMakeCache.txt" "$build"/CMakeFiles/[0-9]*
  cmake -S "$root" -B "$build" -G Ninja "${settings[@]}" >"$build/configure.log" 2>&1 ||
    die $internal "configuring failed: $(grep -A 5 -m 1 'CMake Error' "$build/configure.log" | sed 1d | xargs) (all in $build/configure.log)"
  echo "$wanted" >"$build/setup-settings"
  changed=1
fi
if ! work=$(ninja -C "$build" -n "${targets[@]}" 2>&1); then die $internal "ninja: $(tail -n 1 <<<"$work")"; fi
if [[ "$work" != *"no work to do"* ]]; then
  need_disk "$build" 1000 "building"
  free=$(available_mb)
  [ "$free" -ge 1500 ] || die $memory "the compiler needs 2 GB of memory, and $free MB are free; end other programs, or add swap"
  jobs=$(nproc)
  [ "$jobs" -le $((free / 2000)) ] || jobs=$((free / 2000))
  [ "$jobs" -ge 1 ] || jobs=1
  say "building with $jobs jobs"
  ninja -C "$build" -j "$jobs" "${targets[@]}" >&2 || die $internal "the build failed; the first error is above"
  changed=1
fi
if on_debian && [ ! -e $certificates ]; then
  say "without the package ca-certificates \`bert data download\` trusts no server: install it, or name a file of certificates in CURL_CA_BUNDLE"
fi
if [ -n "$changed" ]; then say "done: $build"; else say "nothing to do: $build is up to date"; fi

# ---- installation ----
if [ -n "$prefix" ]; then
  # LibTorch takes space only on another file system than the cache's, or if it is somebody else's.
  need_disk "$parent" $([ $cuda = ON ] && echo 4000 || echo 1000) "the installation"
  cmake --install "$build" --prefix "$prefix" >"$build/install.log" 2>&1 ||
    die $io "the installation failed: $(tail -n 1 "$build/install.log") (all in $build/install.log)"
  say "installed: $prefix/bin/bert and $prefix/bin/bertrun"
  place=$prefix
  while [[ "$(stat -c %A "$place")" == *[xt] ]] && [ "$place" != / ]; do place=$(dirname "$place"); done
  [ "$place" = / ] || say "other users may not enter $place, so only you can run it"
fi

# ---- the archive ----
if [ -n "$archive" ]; then
  unpacked=("$libtorch")
  python3 "$root/app/setup/wheels.py" texts "$libtorch" $groups || exit $?
  if [ -e "$build/libbert_arrow.so" ]; then
    unpacked+=("$arrow")
    python3 "$root/app/setup/wheels.py" texts "$arrow" arrow || exit $?
  fi
  need_disk "$build" $([ $cuda = ON ] && echo 10000 || echo 2500) "packing"
  stage=$build/package/$release
  rm -rf "$build/package"
  env -u DESTDIR cmake --install "$build" --prefix "$stage" >"$build/install.log" 2>&1 ||
    die $io "the installation failed: $(tail -n 1 "$build/install.log") (all in $build/install.log)"
  say "packing $archive"
  time=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 315532800)}  # 1980, where there is no repository
  version=$(cut -d - -f 2 <<<"$release")
  python3 "$root/app/setup/package.py" "$stage" "$archive" "$version" "$time" "${unpacked[@]}" || exit $?
  rm -rf "$build/package"
  say "packed: $archive, $(($(stat -c %s "$archive") / 1000000)) MB"
fi
