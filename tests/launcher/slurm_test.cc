// app/slurm.sbatch with substitutes for Slurm's programs; with a real Slurm (tests/scripts/slurm_cluster.sh): two
// dependent jobs of two nodes, one of which is preempted, and ranks under srun. Also the image for containers
// (app/Dockerfile).
#include <sys/wait.h>

#include <regex>
#include <set>
#include <sstream>

#include "app/config/pretrain_config.h"
#include "app/system/exit_codes.h"
#include "tests/places.h"
#include "tests/support/lines.h"
#include "tests/support/tiny_pretraining.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

void write_script(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

}  // namespace

TEST_CASE("slurm.sbatch submits paths that hold in the job, and runs the image's programs in a container", "[unit]") {
  const TemporaryDirectory directory;
  const std::filesystem::path tree = directory.path("tree"), here = directory.path("here"), bin = directory.path("bin");
  for (const auto& made : {tree / "app", tree / "configs", here / "sub", bin})
    std::filesystem::create_directories(made);
  std::filesystem::copy(std::filesystem::path(BERT_SOURCE_DIR) / "app/slurm.sbatch", tree / "app/slurm.sbatch");
  // Slurm gives its copy of a batch script this name.
  std::filesystem::copy(tree / "app/slurm.sbatch", tree / "app/slurm_script");
  for (const auto& config : {tree / "configs/own.json", here / "sub/mine.json"}) std::ofstream(config) << "{}";
  // Each substitute writes its call into a log. sbatch prints numbers of jobs; srun exits with SRUN_CODE.
  const std::string log = directory.path("log"), notes = "#!/bin/bash\necho \"${0##*/} in $PWD: $*\" >>" + log + "\n";
  write_script(bin / "sbatch", notes + "wc -l <" + log + "\n");
  write_script(bin / "srun", notes + "exit ${SRUN_CODE:-0}\n");
  write_script(bin / "scontrol",
               "#!/bin/bash\ncase $2 in hostnames) echo n1; echo n2 ;; node) echo 'A=1 NodeAddr=10.0.0.7 "
               "B=2' ;; *) echo \"scontrol $*\" >>" +
                   log + "; exit ${REQUEUE_CODE:-0} ;; esac\n");
  const auto bash = [&](const std::string& variables, const std::filesystem::path& from, const std::string& command) {
    std::filesystem::remove(log);
    const std::string line = "cd " + from.string() + " && PATH=" + bin.string() + ":$PATH " + variables + " bash " +
                             command + " >" + directory.path("out") + " 2>&1";
    const int status = std::system(line.c_str());
    return WEXITSTATUS(status);
  };
  const auto has = [&](const std::string& text) { return read_file(log).find(text) != std::string::npos; };
  const std::string script = (tree / "app/slurm.sbatch").string(), job = (tree / "app/slurm_script").string();
  // One path is relative to the current directory, the other to the checkout.
  CHECK(bash("BERT_GRACE=90 BERT_CONFIGS='sub/mine.json configs/own.json'", here, script + " --nodes 2 -- x=1") == 0);
  CHECK(has("sbatch in " + tree.string() + ": --parsable --job-name=mine --signal=USR1@90 --nodes 2 " + script +
            " --job " + (here / "sub/mine.json").string() + " x=1\n"));
  CHECK(has("--dependency=afterok:1 --kill-on-invalid-dep=yes --nodes 2 " + script + " --job " +
            (tree / "configs/own.json").string() + " x=1\n"));
  // Given to sbatch, the script is one job: it submits nothing.
  for (const std::string& arguments : {std::string(), " " + (here / "sub/mine.json").string()}) {
    CAPTURE(arguments);
    CHECK(bash("SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1", tree, job + arguments) == kUsage);
    CHECK(read_file(directory.path("out")).find("app/slurm.sbatch [SBATCH OPTIONS] [-- OVERRIDES...]") !=
          std::string::npos);
    CHECK_FALSE(std::filesystem::exists(log));
  }
  CHECK(bash("BERT_CONFIGS=none.json", here, script) == kInputMissing);
  CHECK(read_file(directory.path("out")).find("cannot read none.json, neither here nor in " + tree.string()) !=
        std::string::npos);
  const std::string slurm = "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=n[1-2] ";
  const std::string options = "--nnodes 2 --nproc-per-node auto --save-timeout ";
  const std::string tail = " --rdzv-backend c10d --rdzv-id slurm-7 --rdzv-endpoint 10.0.0.7:20007 bert pretrain ";
  CHECK(bash(slurm, tree, job + " --job " + (here / "sub/mine.json").string() + " x=1") == 0);
  CHECK(has(": --kill-on-bad-exit=0 build/bertrun " + options + "300" + tail + (here / "sub/mine.json").string() +
            " x=1\n"));
  CHECK_FALSE(has("requeue"));
  CHECK(bash(slurm + "SRUN_CODE=75 BERT_GRACE=90 BERT_IMAGE=i.sqsh BERT_MOUNTS=/data:/data", tree,
             job + " --job " + (here / "sub/mine.json").string()) == kPreempted);
  const std::string own = tree.string() + ":" + tree.string(), sub = (here / "sub").string();
  CHECK(has("--container-image=i.sqsh --container-workdir=" + tree.string() + " --container-mounts=" + own + "," + sub +
            ":" + sub + ",/data:/data bertrun " + options + "90" + tail));
  CHECK(has("scontrol requeue 7\n"));
  CHECK(bash(slurm + "SRUN_CODE=75 REQUEUE_CODE=1", tree, job + " --job " + (tree / "configs/own.json").string()) ==
        kPreempted);
  CHECK(read_file(directory.path("out")).find("Slurm does not requeue it") != std::string::npos);
  CHECK(bash(slurm + "SRUN_CODE=74 BERT_IMAGE=i.sqsh", tree, job + " --job " + (tree / "configs/own.json").string()) ==
        kIo);
  CHECK(has("--container-mounts=" + own + " bertrun "));
  CHECK_FALSE(has("requeue"));
}

TEST_CASE("app/Dockerfile copies what the build needs, and all of it is there", "[unit]") {
  const std::filesystem::path source = BERT_SOURCE_DIR;
  std::set<std::string> copied;
  std::istringstream dockerfile(read_file(source / "app/Dockerfile"));
  for (std::string line, word; std::getline(dockerfile, line);) {
    std::istringstream words(line);
    if (!(words >> word) || word != "COPY") continue;
    std::vector<std::string> places;
    while (words >> word) places.push_back(word);
    REQUIRE(places.size() >= 2);
    if (places.front() == "--from=build") continue;
    for (size_t i = 0; i + 1 < places.size(); ++i) copied.insert(places[i]);
    // One source directory keeps its name; several sources go to the root.
    CHECK(places.back() == (places.size() == 2 ? places.front() : "./"));
  }
  for (const std::string& place : copied) {
    CAPTURE(place);
    CHECK(std::filesystem::exists(source / place));
  }
  std::set<std::string> needed = {"CMakeLists.txt", "LICENSE", "README.md", "app", "configs"};
  const std::string lists = read_file(source / "CMakeLists.txt");
  const std::regex directory("add_subdirectory\\((\\w+)");
  for (std::sregex_iterator each(lists.begin(), lists.end(), directory), end; each != end; ++each)
    needed.insert((*each)[1]);
  CHECK(needed.size() >= 10);
  CHECK(copied == needed);
}

TEST_CASE("under Slurm phase 1 is requeued when it is preempted, and phase 2 follows; and srun starts ranks",
          "[slow]") {
  const TemporaryDirectory directory;
  const std::filesystem::path tree = directory.path("tree"), source = BERT_SOURCE_DIR;
  std::filesystem::create_directories(tree / "app");
  std::filesystem::create_directories(tree / "build");
  std::filesystem::copy(source / "app/slurm.sbatch", tree / "app/slurm.sbatch");
  std::filesystem::copy(BERTRUN_EXECUTABLE, tree / "build/bertrun");
  for (const char* name : {"a.json", "b.json"}) std::ofstream(tree / name) << "{}";
  const PretrainConfig config = tiny(directory, "run");
  std::ofstream(config.run_directory + ".json") << to_json(config);
  // Replaces bert: its first run of phase 1 waits until it is told to save.
  write_script(
      tree / "build/bert",
      "#!/bin/bash\necho \"$* rank $RANK/$WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE\" >>log\n"
      "trap 'exit 75' USR1\nif [ \"$2\" = $PWD/a.json ] && [ ! -e saved ]; then touch running; while :; do sleep "
      "0.1; done; fi\n");
  write_script(tree / "go",
               "#!/bin/bash\nset -e\ncd \"$(dirname \"$0\")\"\n"
               "BERT_CONFIGS='a.json b.json' BERT_RANKS=2 app/slurm.sbatch --nodes 2 --time 10 -- x=1\n"
               "for i in $(seq 300); do [ -e running ] && break; sleep 0.2; done\nsleep 1\ntouch saved\n"
               "scancel --signal=USR1 1\n"  // Slurm sends it before the time limit (--signal)
               "for i in $(seq 300); do [ -z \"$(squeue -h -t PD,R,CG,CF,S,RQ)\" ] && break; sleep 0.5; done\n"
               "scontrol show job | grep -oE 'JobState=[A-Z]+|Restarts=[0-9]+' >states\n"
               // Without bertrun. The nodes' names are no names of hosts here.
               "if [ -x " BERT_EXECUTABLE
               " ]; then MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 srun -N 2 -n 2 " BERT_EXECUTABLE " pretrain " +
                   config.run_directory + ".json; fi\n");
  const int status =
      std::system(("bash " + (source / "tests/scripts/slurm_cluster.sh").string() + " " + directory.path("cluster") +
                   " " + (tree / "go").string() + " >" + directory.path("out") + " 2>&1")
                      .c_str());
  if (WEXITSTATUS(status) == 66)
    BERT_SKIP("no Slurm: munge, slurmctld, slurmd and slurm-client of Debian, and root, are needed");
  CAPTURE(read_file(directory.path("out")));
  REQUIRE(status == 0);
  CHECK(read_file(tree / "states") == "JobState=COMPLETED\nRestarts=1\nJobState=COMPLETED\nRestarts=0\n");
  const auto lines = lines_in<std::multiset<std::string>>(std::ifstream(tree / "log"));
  CHECK(lines.size() == 12);  // phase 1 twice and phase 2 once, by four ranks
  for (const char* place : {"rank 0/4 node 0/2", "rank 1/4 node 0/2", "rank 2/4 node 1/2", "rank 3/4 node 1/2"}) {
    CHECK(lines.count("pretrain " + (tree / "a.json x=1 ").string() + place) == 2);
    CHECK(lines.count("pretrain " + (tree / "b.json x=1 ").string() + place) == 1);
  }
  if (std::filesystem::exists(BERT_EXECUTABLE))
    CHECK(read_file(directory.path("out")).find("2 ranks, ") != std::string::npos);
}
