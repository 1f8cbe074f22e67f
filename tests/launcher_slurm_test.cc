// app/slurm.sbatch on a real Slurm (tests/slurm_cluster.sh): two dependent jobs of two nodes, one of them preempted.
#include <sys/wait.h>

#include <set>

#include "tests/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

void write_script(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

}  // namespace

TEST_CASE("under Slurm phase 1 is requeued when it is preempted, and phase 2 follows", "[slow]") {
  const TemporaryDirectory directory;
  const std::filesystem::path tree = directory.path("tree"), source = BERT_SOURCE_DIR;
  std::filesystem::create_directories(tree / "app");
  std::filesystem::create_directories(tree / "build");
  std::filesystem::copy(source / "app/slurm.sbatch", tree / "app/slurm.sbatch");
  std::filesystem::copy(BERTRUN_EXECUTABLE, tree / "build/bertrun");
  for (const char* name : {"a.json", "b.json"}) std::ofstream(tree / name) << "{}";
  // In place of bert: waits in its first run of phase 1 until it is told to save.
  write_script(tree / "build/bert",
               "#!/bin/bash\necho \"$* rank $RANK/$WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE\" >>log\n"
               "trap 'exit 75' USR1\nif [ \"$2\" = a.json ] && [ ! -e saved ]; then touch running; while :; do sleep "
               "0.1; done; fi\n");
  write_script(tree / "go",
               "#!/bin/bash\nset -e\ncd \"$(dirname \"$0\")\"\n"
               "BERT_CONFIGS='a.json b.json' BERT_RANKS=2 app/slurm.sbatch --nodes 2 --time 10 -- x=1\n"
               "for i in $(seq 300); do [ -e running ] && break; sleep 0.2; done\nsleep 1\ntouch saved\n"
               "scancel --signal=USR1 1\n"  // as Slurm does before the time limit (--signal)
               "for i in $(seq 300); do [ -z \"$(squeue -h -t PD,R,CG,CF,S,RQ)\" ] && break; sleep 0.5; done\n"
               "scontrol show job | grep -oE 'JobState=[A-Z]+|Restarts=[0-9]+' >states\n");
  const int status =
      std::system(("bash " + (source / "tests/slurm_cluster.sh").string() + " " + directory.path("cluster") + " " +
                   (tree / "go").string() + " >" + directory.path("out") + " 2>&1")
                      .c_str());
  if (WEXITSTATUS(status) == 66)
    BERT_SKIP("no Slurm: munge, slurmctld, slurmd and slurm-client of Debian, and root, are needed");
  CAPTURE(read_file(directory.path("out")));
  REQUIRE(status == 0);
  CHECK(read_file(tree / "states") == "JobState=COMPLETED\nRestarts=1\nJobState=COMPLETED\nRestarts=0\n");
  std::multiset<std::string> lines;
  std::ifstream log(tree / "log");
  for (std::string line; std::getline(log, line);) lines.insert(line);
  CHECK(lines.size() == 12);  // phase 1 twice, phase 2 once, by four ranks
  for (const char* place : {"rank 0/4 node 0/2", "rank 1/4 node 0/2", "rank 2/4 node 1/2", "rank 3/4 node 1/2"}) {
    CHECK(lines.count(std::string("pretrain a.json x=1 ") + place) == 2);
    CHECK(lines.count(std::string("pretrain b.json x=1 ") + place) == 1);
  }
}
