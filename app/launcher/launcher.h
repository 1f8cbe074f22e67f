// bertrun: starts the ranks of one program on one or many machines, with torchrun's options and environment.
//
// Note [Launcher]
//
// One bertrun runs on each machine (a node). It is one thread that waits in epoll (app/net/event_loop.h). No peer and no
// rank can block it. A node consists of an agent (agent.cc), which starts, watches and stops the ranks of its machine,
// and a link to the job (job/job_link.h). One node hosts the rendezvous. With the static rendezvous the host is
// --node-rank 0. With c10d the host is the machine that --rdzv-endpoint names; of several agents there, the first to
// take the port is the host. The link of the host is a JobHost. It runs the state machine that decides which nodes take
// part, which ranks they run, and what a failure means (job/rendezvous.h). The link of every other node is a JobClient.
//
//   ranks of other nodes --loopback--> JobClient ==one authenticated connection==> JobHost
//   JobHost --loopback--> StoreServer <--loopback-- ranks of the host
//
// The store. PyTorch's programs and ours meet at a c10d::TCPStore. LibTorch's server of it listens on every interface,
// authenticates nobody and takes memory without limit. Therefore the launcher holds the store
// (TORCHELASTIC_USE_AGENT_STORE=True): a server of the same protocol, on loopback, in its own event loop
// (store/store_server.h). Every other node opens a loopback port and relays its connections to the host
// (store/store_relay.h). So each rank sees a plain store at MASTER_ADDR=127.0.0.1. A job of one node opens no other
// socket.
//
// Neighbours. Every user of a machine can reach its loopback ports. The store and the relays ask the kernel who owns
// the other end of each connection, and reset those of other users (app/net/local_acceptor.h). bertrun does not load
// LibTorch.
//
// The network. The host listens on the endpoint's address only. Connections between agents are TLS with a key that is
// derived from the job's token. The host closes a connection that has not proved that it knows the token within five
// seconds (app/net/secure_channel.h). Connections without proof are bounded in number and memory. If there are too
// many, the oldest connection from the busiest address is closed. Refused connections are counted and logged.
//
// The token (settings/job_token.h) has 256 bits. It comes from BERTRUN_TOKEN or from the file that BERTRUN_TOKEN_FILE
// names. If the endpoint is a loopback address, it may also come from a file in the user's runtime directory, which the
// first agent makes and the last agent removes. A stranger can neither read nor occupy that directory. For any other
// endpoint it must be given: without a token the launcher refuses with 77 and says how to make one. The token is in no
// command line, no log, and not in the environment of the ranks.
//
// Failures. The first rank that fails by itself decides (Note [Culprit] in job/culprit.h). Its exit code (128 + n for
// signal n) is the exit code of bertrun on every node. One line names the rank on every node, and its error.json holds
// the known facts. The other ranks get SIGTERM, and SIGKILL 0.7 s later or after TORCH_ELASTIC_SHUTDOWN_TIMEOUT. A
// suspended rank (SIGSTOP) is named and gets SIGKILL at once. With --max-restarts all nodes restart together.
//
// Saving. SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed to all ranks, which then have 30 s, as under torchrun. SIGUSR1
// and SIGUSR2 are passed on without further effect. A signal that comes before any rank runs ends the job with 75,
// because nothing is lost. An agent passes a signal to its ranks at once. If it loses the host after that, it waits for
// its ranks, and their exit codes decide. A rank that exits with 75 (preempted, a checkpoint is saved) ends the job
// without a restart. The other ranks get no signal and have 300 s to save too. --save-timeout sets both times; SIGKILL
// follows. A second signal two seconds later or more ends all ranks at once. Earlier repeats count as the first signal.
// The job's code is 75 only if every rank could save (job/verdict.h).
//
// Ranks lead sessions of their own and die with bertrun (PR_SET_PDEATHSIG). A small guard process kills the processes
// that ranks have started (ranks/process_guard.h).
//
// Differences to torchrun:
// - MASTER_ADDR is always loopback.
// - A program runs as it is unless its name ends in .py.
// - Options cannot be abbreviated.
// - TORCHELASTIC_RESTART_COUNT is the same on all nodes.
// - etcd and torch's file timers are not supported.
// - A signal that ends the job gives 128 + n, or the code of ranks that had to save, on all nodes; 75 before any rank
//   has started.
// - SIGKILL in --signals-to-handle is an error.
// - --monitor-interval, at least 1 ms, affects only logs, because the end of a rank is seen at once.
// - A new node does not restart a node that is done.
// - Each rank has the variables BERTRUN_JOB, BERTRUN_STATE (app/system/rank_state.h) and, in a job of several nodes,
//   BERTRUN_LOCAL_ADDRESS (app/net/network_interfaces.h).
// - In the arguments of a program only ${local_rank} is replaced; a shell's $$ stays.
// - In `bertrun script.py -- a` the program gets the `--`, which torchrun drops.
#pragma once

namespace bert {

/// bertrun. Returns an exit code; throws UsageError, ConfigError, IoError.
int launch_command(int argc, char** argv);

}  // namespace bert
