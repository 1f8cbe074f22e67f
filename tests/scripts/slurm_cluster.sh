#!/usr/bin/env bash
# tests/scripts/slurm_cluster.sh DIRECTORY COMMAND...: starts a private Slurm cluster of two nodes on this machine and runs a command on it.
# It runs munged, slurmctld and two slurmd of Debian's packages (munge slurmctld slurmd slurm-client) as root, with all their files under
# DIRECTORY. SLURM_PREFIX names a directory with the unpacked packages, if they are not installed. Exit code 66: something is missing.
set -euo pipefail
directory=$(realpath -m "$1")
shift
prefix=${SLURM_PREFIX:-}
libraries=$prefix/usr/lib/x86_64-linux-gnu
export PATH=$prefix/usr/sbin:$prefix/usr/bin:$PATH
[ -z "$prefix" ] || export LD_LIBRARY_PATH=$libraries:$libraries/slurm-wlm
[ "$(id -u)" -eq 0 ] || { echo "slurm_cluster: slurmd needs root" >&2; exit 66; }
find_program() { command -v "$1" || command -v "$1-wlm" || { echo "slurm_cluster: there is no $1; install munge slurmctld slurmd slurm-client" >&2; return 66; }; }
munged=$(find_program munged) slurmctld=$(find_program slurmctld) slurmd=$(find_program slurmd)
slurmstepd=$(find_program slurmstepd)
find_program sbatch >/dev/null

mkdir -p "$directory"/{state,spool1,spool2,munge}
chmod 755 "$directory" && chmod 700 "$directory/munge"
cd "$directory"
head -c 1024 /dev/urandom >munge/key && chmod 400 munge/key
free_port() {
  local port
  while port=$((10000 + RANDOM % 10000)) && (: <>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do :; done
  echo $port
}
host=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$directory/munge/socket,cred_expire=5
CredType=cred/munge
PluginDir=$libraries/slurm-wlm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool%n
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd%n.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd%n.log
ReturnToService=2
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
KillWait=5
MinJobAge=60
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=2
NodeName=node2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=2
PartitionName=all Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP
CONF
touch cgroup.conf
export SLURM_CONF=$directory/slurm.conf
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
}
trap stop EXIT
"$munged" --foreground --force --key-file=munge/key --socket=munge/socket --pid-file="$directory/munge/pid" --log-file="$directory/munge/log" \
  --seed-file="$directory/munge/seed" >munge.out 2>&1 & pids+=($!)
for _ in $(seq 50); do [ -S munge/socket ] && break; sleep 0.1; done
"$slurmctld" -D -f "$SLURM_CONF" >slurmctld.out 2>&1 & pids+=($!)
for node in node1 node2; do
  "$slurmd" -D -N "$node" -f "$SLURM_CONF" -d "$slurmstepd" >"$node.out" 2>&1 & pids+=($!)
done
for _ in $(seq 100); do
  [ "$(sinfo -h -t idle -o %D 2>/dev/null || echo 0)" = 2 ] && break
  sleep 0.2
done
[ "$(sinfo -h -t idle -o %D)" = 2 ] || { echo "slurm_cluster: the nodes do not come up" >&2; cat node1.out slurmctld.out >&2; exit 70; }
"$@"
