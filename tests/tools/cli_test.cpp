// The program from end to end: right input gives right files, wrong input gives one clear line and its exit code.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/tools/support.hpp"
#include "tools/inputs.hpp"
#include "tools/io/file.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/safetensors.hpp"

namespace tandem::tools {
namespace {

const std::string example = TANDEM_EXAMPLE_DATA "/smollm2_layer18.safetensors";

struct Ended {
  int code;
  std::string out, err;
};

class Cli : public ::testing::Test {
 protected:
  std::string text_of(const std::string& name) const {
    const Bytes bytes = read_file(folder_.file(name));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// Runs the program in the test's folder.
  Ended run(const std::string& arguments) const {
    const std::string command = "cd '" + folder_.path().string() + "' && '" TANDEM_PROGRAM "' " + arguments +
                                " >stdout.txt 2>stderr.txt </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of("stdout.txt"), text_of("stderr.txt")};
  }

  void expect_error(const std::string& arguments, int code, const std::string& part) const {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, code) << arguments << "\n" << ended.err;
    EXPECT_NE(ended.err.find(part), std::string::npos) << arguments << "\n" << ended.err;
  }

  void write_inputs(const std::vector<int64_t>& query, const std::vector<int64_t>& keys) const {
    write_npy(folder_.file("q.npy"), random_array(query, Dtype::fp32, 1));
    write_npy(folder_.file("k.npy"), random_array(keys, Dtype::fp32, 2));
    write_npy(folder_.file("v.npy"), random_array(keys, Dtype::fp32, 3));
  }

  TemporaryFolder folder_;
  const std::string files_ = "run --backend cpu --query q.npy --key k.npy --value v.npy ";
};

TEST_F(Cli, HelpNamesEveryCommandAndHasExamples) {
  const Ended all = run("--help");
  EXPECT_EQ(all.code, 0);
  for (const char* command : {"info", "run", "verify", "bench", "quantize", "accuracy", "trace"}) {
    EXPECT_NE(all.out.find(command), std::string::npos);
    const Ended one = run(std::string(command) + " --help");
    EXPECT_EQ(one.code, 0);
    EXPECT_NE(one.out.find("Example"), std::string::npos) << command;
  }
  EXPECT_NE(run("--version").out.find(version()), std::string::npos);
}

TEST_F(Cli, InfoIsJson) {
  const Ended ended = run("info --json");
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto info = nlohmann::json::parse(ended.out);
  EXPECT_EQ(info["kernels"].size(), kernel_count());
  for (const auto& kernel : info["kernels"]) {
    for (const char* key : {"name", "pass", "dtype", "registers", "shared_bytes", "local_bytes"}) {
      EXPECT_TRUE(kernel.contains(key)) << key;
    }
  }
  EXPECT_EQ(info["backends"][0]["name"], "cpu");
  EXPECT_EQ(run("info").code, 0);
}

TEST_F(Cli, RunsTheExampleAndChecksIt) {
  const Ended ended = run("run --input '" + example + "' --causal --check --explain --output o.safetensors");
  ASSERT_EQ(ended.code, 0) << ended.err << ended.out;
  for (const char* part : {"passed", "TFLOP/s", "(1, 1024, 9, 64)", "max error", "cosine", "lse error"}) {
    EXPECT_NE(ended.out.find(part), std::string::npos) << part;
  }
  const auto result = Safetensors::read(folder_.file("o.safetensors"));
  EXPECT_EQ(result.at("out").shape, (std::vector<int64_t>{1, 1024, 9, 64}));
  EXPECT_EQ(result.at("out").dtype, Dtype::fp16);
  EXPECT_EQ(result.at("lse").shape, (std::vector<int64_t>{1, 9, 1024}));
}

TEST_F(Cli, ChecksWhatIsAtTheEdgeOfTheContract) {
  for (const char* arguments :
       {"--key-length 0", "--scale 3e38", "--scale -3e38", "--scale 0", "--window -1,9223372036854775807"}) {
    const Ended ended = run("run --backend cpu --check --random 1,64,2,32 " + std::string(arguments));
    EXPECT_EQ(ended.code, 0) << arguments << "\n" << ended.err << ended.out;
  }
}

TEST_F(Cli, WritesNpy) {
  write_inputs({2, 9, 4, 16}, {2, 13, 2, 16});
  const Ended ended = run(files_ + "--dtype bf16 --window 3,0 --scale 0.5 --check --output o.npy --lse l.npy");
  ASSERT_EQ(ended.code, 0) << ended.err << ended.out;
  EXPECT_EQ(read_npy(folder_.file("o.npy")).shape, (std::vector<int64_t>{2, 9, 4, 16}));
  EXPECT_EQ(read_npy(folder_.file("o.npy")).dtype, Dtype::fp32) << "bf16 is written as float32";
  EXPECT_EQ(read_npy(folder_.file("l.npy")).shape, (std::vector<int64_t>{2, 4, 9}));
}

TEST_F(Cli, PackedSequencesAreIndependent) {
  write_inputs({12, 2, 16}, {12, 2, 16});
  ASSERT_EQ(run(files_ + "--cu-seqlens-q 0,5,12 --cu-seqlens-k 0,5,12 --causal --check --output a.npy").code, 0);
  const Array all = read_npy(folder_.file("a.npy"));
  Array first_query = read_npy(folder_.file("q.npy"));
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) {
    Array part = read_npy(folder_.file(name));
    part.bytes.resize(5 * 2 * 16 * 4);
    part.shape = {1, 5, 2, 16};
    write_npy(folder_.file(name), part);
  }
  ASSERT_EQ(run(files_ + "--causal --output b.npy").code, 0);
  const Array alone = read_npy(folder_.file("b.npy"));
  EXPECT_TRUE(std::equal(alone.bytes.begin(), alone.bytes.end(), all.bytes.begin()));
}

TEST_F(Cli, ComputesGradients) {
  write_inputs({1, 30, 4, 16}, {1, 40, 2, 16});
  write_npy(folder_.file("do.npy"), random_array({1, 30, 4, 16}, Dtype::fp32, 4));
  const Ended ended =
      run(files_ + "--causal --grad-output do.npy --grad-query dq.npy --grad-key dk.npy --grad-value dv.npy --check");
  ASSERT_EQ(ended.code, 0) << ended.err << ended.out;
  EXPECT_NE(ended.out.find("backward on cpu"), std::string::npos);
  EXPECT_EQ(read_npy(folder_.file("dq.npy")).shape, (std::vector<int64_t>{1, 30, 4, 16}));
  EXPECT_EQ(read_npy(folder_.file("dk.npy")).shape, (std::vector<int64_t>{1, 40, 2, 16}));
  EXPECT_EQ(read_npy(folder_.file("dv.npy")).shape, (std::vector<int64_t>{1, 40, 2, 16}));
  write_npy(folder_.file("do.npy"), random_array({1, 31, 4, 16}, Dtype::fp32, 4));
  expect_error(files_ + "--grad-output do.npy", 1, "do.npy: the shape (1, 31, 4, 16) is not that of the output");
}

TEST_F(Cli, TheEmulatorRunsAndIsTraced) {
  if (!available(Backend::emulator).ok()) GTEST_SKIP() << available(Backend::emulator).message;
  const Ended ended = run("run --random 1,200,2,128 --causal --backend emulator --seed 3 --check");
  EXPECT_EQ(ended.code, 0) << ended.err << ended.out;
  EXPECT_NE(ended.out.find("forward on emulator"), std::string::npos);
  EXPECT_EQ(ended.out.find("TFLOP/s"), std::string::npos) << "the emulator's time says nothing about a machine";
  const Ended traced = run("trace --random 1,256,1,128 --json t.json --plot t.svg --cycles 0,5000");
  ASSERT_EQ(traced.code, 0) << traced.err;
  EXPECT_FALSE(nlohmann::json::parse(text_of("t.json"))["traceEvents"].empty());
  EXPECT_NE(text_of("t.svg").find(">tensor core<"), std::string::npos);
  expect_error("trace", 2, "nothing to write");
  expect_error("trace --plot t.png", 2, ".svg");
  expect_error("bench --backend emulator", 2, "no speed");
}

TEST_F(Cli, WrongUsageExitsWith2) {
  expect_error("", 2, "subcommand");
  expect_error("rnu", 2, "'rnu' is no command; there are info, run, verify");
  expect_error("accuracy --lengths 1024,-5", 2, "--lengths: -5");
  write_npy(folder_.file("two.npy"), random_array({8, 16}, Dtype::fp32, 1));
  expect_error("quantize --key two.npy --output o_", 1, "key: the shape (8, 16) has 2 axes");
  write_npy(folder_.file("one.npy"), random_array({8}, Dtype::fp32, 1));
  expect_error("quantize --key two.npy --rope-cos one.npy --rope-sin one.npy --output o_", 1, "key: the shape");
  write_npy(folder_.file("four.npy"), random_array({1, 8, 1, 16}, Dtype::fp32, 1));
  expect_error("quantize --key four.npy --rope-cos one.npy --rope-sin one.npy --output o_", 1,
               "--rope-cos: the shape (8)");
  expect_error("quantize --key k.npy --output /nosuch/k.safetensors", 1, "/nosuch/k.safetensors: can't write");
  expect_error("run --casual --random 1,8,1,8", 2, "--casual");
  expect_error("run", 2, "no input");
  expect_error("run --random 1,8,1", 2, "4 integers");
  expect_error("run --random 1,8,1,x", 2, "--random");
  expect_error("run --random 1,8,1,8 --window 5", 2, "--window");
  expect_error("run --random 1,8,1,8 --backend gpu", 2, "gpu not in");
  expect_error("run --random 1,8,1,8 --dtype int8", 2, "int8 not in");
  expect_error("run --random 1,8,1,8 --output o.txt", 2, "must end in .npy");
  expect_error("run --random 1,8,1,8 --input x.safetensors", 2, "only one of");
  expect_error("run --query q.npy", 2, "needed together");
  expect_error("run --random 1,8,1,8 --layer a", 2, "--layer needs --input");
  expect_error("run --random 1,8,1,8 --scale big", 2, "--scale");
  expect_error("run --random 1,8,1,8 --scale nan", 1, "scale");
  expect_error("run --random 1,8,1,8 --key-heads 0", 1, "key");
  expect_error("run --random 1,8,1,8 --grad-output nosuch.npy", 1, "nosuch.npy");
  expect_error("run --random 1,20000,1,8 --backward --check", 1, "too large");
  expect_error("run --random 1,8,1,8 --threads 0", 2, "--threads");
  expect_error("bench --plot plot.pdf", 2, ".png or .svg");
  expect_error("bench --head-dims 0", 2, "not positive");
  expect_error("verify --backend cpu --quick --case 99999", 2, "--case");
}

TEST_F(Cli, MissingAndBrokenFilesExitWith1) {
  expect_error("run --query no.npy --key no.npy --value no.npy", 1, "no.npy: can't read: No such file");
  expect_error("run --input no.safetensors", 1, "no.safetensors");
  write_inputs({1, 8, 2, 16}, {1, 8, 2, 16});
  Bytes cut = read_file(folder_.file("k.npy"));
  cut.resize(cut.size() - 4);
  write_file(folder_.file("k.npy"), cut);
  expect_error(files_, 1, "k.npy: the shape (1, 8, 2, 16) of '<f4' needs 1024 bytes");
  Bytes half = read_file(example);
  half.resize(half.size() / 2);
  write_file(folder_.file("half.safetensors"), half);
  expect_error("run --input half.safetensors", 1, "half.safetensors: tensor");
  expect_error("run --input '" + example + "' --layer layer7", 1, "no tensor 'layer7.query'; it has layer18.key");
}

TEST_F(Cli, WrongShapesExitWith1AndNameTheTensor) {
  write_inputs({1, 8, 3, 16}, {1, 8, 2, 16});
  expect_error(files_, 1, "query");
  write_inputs({1, 8, 2, 16}, {1, 8, 2, 24});
  expect_error(files_, 1, "key");
  write_inputs({8, 2, 16}, {8, 2, 16});
  expect_error(files_, 1, "has 3 axes");
  expect_error(files_ + "--cu-seqlens-q 0,9 --cu-seqlens-k 0,8", 1, "cu_query");
  expect_error(files_ + "--cu-seqlens-q 0,6,4,8 --cu-seqlens-k 0,2,4,8", 1, "cu_query");
  expect_error("run --random 1,8,2,16 --window -3,0 --backend cpu", 1, "mask.left");
}

TEST_F(Cli, OutputsThatCannotBeWrittenAreFoundBeforeTheWork) {
  expect_error("run --random 1,8,1,8 --output no/such/folder/o.npy", 1, "can't write");
  EXPECT_EQ(run("run --random 1,8,1,8 --output no/o.npy").out, "");
  std::filesystem::create_directory(folder_.file("d.npy"));
  expect_error("run --random 1,8,1,8 --output d.npy", 1, "directory");
  expect_error("bench --backend cpu --json no/such/b.json", 1, "can't write");
  expect_error("bench --backend cpu --ablation", 1, "needs the backend sm90");
}

TEST_F(Cli, AFailedRunLeavesNoFile) {
  write_inputs({1, 8, 3, 16}, {1, 8, 2, 16});
  EXPECT_EQ(run(files_ + "--output o.npy").code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("o.npy")));
}

TEST_F(Cli, ABackendThatCannotRunIsNamed) {
  if (available(Backend::sm90).ok()) GTEST_SKIP() << "this machine has a Hopper GPU";
  expect_error("run --random 1,8,1,64 --backend sm90", 1, "sm90");
  const Ended ended = run("run --random 1,8,1,64");
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.out.find("chosen by auto, not sm90"), std::string::npos) << ended.out;
}

TEST_F(Cli, VerifyCountsAndBenchWritesItsRows) {
  const Ended verified = run("verify --backend cpu --count 4 --seed 2");
  EXPECT_EQ(verified.code, 0) << verified.out;
  EXPECT_NE(verified.out.find("4 passed, 0 failed, 0 skipped"), std::string::npos) << verified.out;
  const Ended measured =
      run("bench --backend cpu --seqlens 64 --tokens 64 --hidden 64 --head-dims 32 --samples 1 --json b.json");
  ASSERT_EQ(measured.code, 0) << measured.err;
  const auto results = nlohmann::json::parse(text_of("b.json"));
  ASSERT_EQ(results["rows"].size(), 2U);
  for (const char* key : {"pass", "dtype", "head_dim", "mask", "seqlen", "batch", "heads", "tandem", "cudnn", "fa3",
                          "cublas", "spread"}) {
    EXPECT_TRUE(results["rows"][0].contains(key)) << key;
  }
  EXPECT_GT(results["rows"][0]["tandem"].get<double>(), 0);
}

TEST_F(Cli, BenchDrawsWhereGnuplotIs) {
  if (std::system("command -v gnuplot >/dev/null") != 0) GTEST_SKIP() << "gnuplot isn't installed";
  const std::string bench = "bench --backend cpu --seqlens 32,64 --tokens 64 --hidden 64 --head-dims 32 --samples 1 ";
  EXPECT_EQ(run(bench + "--plot p.png").code, 0);
  EXPECT_EQ(text_of("p.png").substr(1, 3), "PNG");
  EXPECT_EQ(run(bench + "--plot p.svg").code, 0);
  EXPECT_NE(text_of("p.svg").find("<svg"), std::string::npos);
}

TEST_F(Cli, QuantisesFiles) {
  write_inputs({1, 100, 4, 64}, {1, 150, 2, 64});
  const Ended ended =
      run("quantize --backend cpu --query q.npy --key k.npy --value v.npy --hadamard --value-mean --rows 64 --output "
          "o.safetensors");
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto file = Safetensors::read(folder_.file("o.safetensors"));
  EXPECT_EQ(file.at("query").dtype, Dtype::e4m3);
  EXPECT_EQ(file.at("value").shape, (std::vector<int64_t>{1, 2, 10, 64, 16}));
  EXPECT_EQ(file.at("key_scale").shape, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(file.at("value_mean").shape, (std::vector<int64_t>{1, 2, 64}));
  for (const float scale : floats(file.at("query_scale"), "scales")) EXPECT_GT(scale, 0);
  ASSERT_EQ(run("quantize --backend cpu --key k.npy --int8 --scales head --output c_").code, 0);
  EXPECT_EQ(read_npy(folder_.file("c_key_scale.npy")).shape, (std::vector<int64_t>{1, 2}));
  expect_error("quantize --backend cpu --output o.safetensors", 2, "no input");
  expect_error("quantize --backend cpu --key k.npy --rope-cos q.npy --output c_", 2, "--rope-sin");
}

TEST_F(Cli, AttendsIn8Bits) {
  const Ended ended = run("run --backend cpu --random 1,200,4,64 --key-heads 2 --causal --fp8 fp8 --check");
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("passed"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("e4m3"), std::string::npos) << ended.out;
  EXPECT_EQ(run("verify --backend cpu --fp8 --count 4").code, 0);
  expect_error("run --backend cpu --random 1,20,1,64 --fp8 fp8 --backward", 2, "forward only");
  expect_error("run --backend cpu --random 1,20,1,64 --dtype fp32 --fp8 fp8", 2, "--dtype");
  expect_error("run --backend cpu --random 1,20,1,64 --fp8 fp4", 2, "fp4");
  expect_error("bench --backend cpu --fp8 fp8 --backward", 2, "--fp8");
}

TEST_F(Cli, AccuracyAsJson) {
  const Ended ended =
      run("accuracy --backend cpu --data paper --keys 256 --rows 16 --seeds 1 --heads 1 --lengths 512 --json a.json");
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto all = nlohmann::json::parse(text_of("a.json"));
  ASSERT_EQ(all["rows"].size(), 6U);
  for (const auto& row : all["rows"]) {
    EXPECT_EQ(row["data"], "paper");
    EXPECT_GT(row["rmse"].get<double>(), 0) << row["method"];
    EXPECT_LT(row["rmse"].get<double>(), row["method"] == "fp16" ? 1e-3 : 0.2) << row["method"];
  }
  EXPECT_EQ(all["lengths"].size(), 6U);
  expect_error("accuracy --backend cpu --data real", 2, "--input");
}

}  // namespace
}  // namespace tandem::tools
