// bertrun: starts the ranks of one program on one or many machines, with torchrun's options and environment.
//
// Note [Launcher]
//
// One bertrun runs on each machine (a node). All of it is one thread that waits in poll (event_loop.h); nothing that a
// peer or a rank does can block it. A node is an agent (agent.h), which starts, watches and stops its ranks, and a link
// to the job (job_link.h). One node hosts the rendezvous: --node-rank 0 (static), or the machine that --rdzv-endpoint
// names and that could take its port (c10d). There the link is a JobHost, with the state machine that decides who takes
// part, with which ranks, and what a failure means (rendezvous.h); elsewhere a JobClient.
//
//   other nodes' ranks --loopback--> JobClient ==one authenticated connection==> JobHost
//   JobHost --loopback--> c10d::TCPStore <--loopback-- the host's own ranks
//
// The store. PyTorch's and our programs meet at a TCPStore, which listens on every interface and asks nobody who they
// are. So the launcher holds it (TORCHELASTIC_USE_AGENT_STORE=True), on loopback, in a process of its own that loads
// LibTorch only when it is needed (store_server.h). The other nodes open a loopback port each and relay what comes
// there (store_relay.h). Every rank therefore sees a plain store at MASTER_ADDR=127.0.0.1. A job of one node opens no
// other socket.
//
// The network. The host listens on the endpoint's address only. A connection is closed unless it shows within five
// seconds, by HMAC-SHA256 over nonces of both sides, that it knows the job's token; the host shows the same
// (secure_channel.h). Every later frame is numbered and carries a MAC under a key of this connection; its length is
// bounded. Connections that have not passed yet are bounded in number and memory: when there are too many, the oldest
// of the address with the most goes. What was turned away is counted and logged. Nothing is encrypted: keys and values
// of the store can be read on the wire, as under torchrun.
//
// The token (job_token.h) is 256 bits, from BERTRUN_TOKEN, from the file that BERTRUN_TOKEN_FILE names, or, when the
// endpoint is a loopback address, from a file in the user's runtime directory that the first agent makes and the last
// one removes. For another endpoint it must be given: without one the launcher refuses (77) and says how to make one.
// It is in no command line, no log, and not in the environment of the ranks.
//
// Failures. The first rank that fails by itself decides (Cause in failure.h): its exit code (128 + n for signal n) is
// that of bertrun on every node, one line names it everywhere, and its error.json has what is known. The others get
// SIGTERM and 0.7 s later SIGKILL, or what TORCH_ELASTIC_SHUTDOWN_TIMEOUT says; one that is stopped (SIGSTOP) is named
// and gets SIGKILL at once. With --max-restarts all nodes restart together.
//
// Saving. SIGTERM and its like are passed to all ranks, which then have 30 s, as under torchrun; SIGUSR1 and SIGUSR2
// are passed on and nothing else. A signal that comes while nodes still meet ends the job with 75: there is nothing to
// lose. An agent passes a signal on to its own ranks at once, and goes on with them when it loses the host meanwhile:
// then what they say is its exit code. A rank that says 75 (preempted, a checkpoint is saved) ends the job, without a
// restart; the others are left alone to save too, for 300 s. --save-timeout sets both times; then comes SIGKILL. A
// second signal two seconds later or more ends all at once; before that it is the same wish, come by another way. 75 is
// the job's code only when every rank could save (verdict.h).
//
// Timers (file_timer.h). With TORCHELASTIC_ENABLE_FILE_TIMER=1 ranks can set timers for themselves through torch's
// FileTimerClient; a process of a rank whose timer expires gets the signal that it asked for, and its rank's end is
// then a failure like any other (torchrun kills itself as well).
//
// Ranks lead sessions of their own and die with bertrun (PR_SET_PDEATHSIG); a small guard process kills what they have
// started (process_guard.h).
//
// Unlike torchrun: MASTER_ADDR is always loopback; a program is a program unless its name ends in .py; options cannot
// be abbreviated; TORCHELASTIC_RESTART_COUNT is the same on all nodes; etcd is not spoken; a signal that ends the job
// gives 128 + n or what ranks say that were to save, on all nodes, and 75 before any has started; SIGKILL in
// --signals-to-handle is an error; --monitor-interval is about logs alone, since a rank's end is seen at once, and at
// least 1 ms; a newcomer does not restart a node that is done; each rank has the variables BERTRUN_JOB, BERTRUN_STATE
// (app/system/rank_state.h) and, in a job of several nodes, BERTRUN_LOCAL_ADDRESS (app/net/network_interfaces.h); in a program's
// arguments only ${local_rank} is replaced, a shell's $$ stays; of `bertrun script.py -- a` the program gets the --,
// which torchrun drops.
#pragma once

namespace bert {

/// bertrun. Returns an exit code; throws UsageError, ConfigError, IoError.
int launch_command(int argc, char** argv);

}  // namespace bert
