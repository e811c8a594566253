// The emulator through the program: its settings, its errors, its speed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

struct Result {
  int status;
  std::string text;     // both streams
  double user_seconds;  // of the processor
};

Result run(const std::string& environment, const std::string& arguments) {
  const auto user_seconds = [] {
    rusage usage{};
    getrusage(RUSAGE_CHILDREN, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
  };
  const double before = user_seconds();
  const std::string command = environment + " " TANDEM_PROGRAM " " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text, user_seconds() - before};
}

constexpr const char* problem = "run --random 1,256,2,128 --backend emulator --check";

TEST(EmulatorCommand, RunsASmallProblemInUnderASecond) {
  const Result result = run("", problem);
  EXPECT_EQ(result.status, 0) << result.text;
  EXPECT_NE(result.text.find("passed"), std::string::npos) << result.text;
  EXPECT_LT(result.user_seconds, 1.0);
}

TEST(EmulatorCommand, TakesSettings) {
  for (const char* settings : {"delay=0", "delay=2000", "preempt=3", "sms=1", "sms=5", "host_threads=2", "races=0",
                               "delay=300,preempt=20,sms=3"}) {
    const Result result =
        run(std::string("TANDEM_EMULATOR_OPTIONS=") + settings, std::string(problem) + " --causal --seed 9");
    EXPECT_EQ(result.status, 0) << settings << '\n' << result.text;
  }
}

TEST(EmulatorCommand, NamesAWrongSetting) {
  for (const char* settings : {"speed=3", "delay", "delay=x", "sms=-1", "races=2x"}) {
    const Result result = run(std::string("TANDEM_EMULATOR_OPTIONS=") + settings, problem);
    EXPECT_NE(result.status, 0) << settings;
    EXPECT_NE(result.text.find("TANDEM_EMULATOR_OPTIONS"), std::string::npos) << result.text;
    EXPECT_NE(result.text.find(settings), std::string::npos) << result.text;
  }
}

TEST(EmulatorCommand, SaysWhereItsLibraryWasLookedFor) {
  const Result result = run("TANDEM_EMULATOR_LIBRARY=/nowhere/kernels.so", problem);
  EXPECT_NE(result.status, 0);
  EXPECT_NE(result.text.find("/nowhere/kernels.so"), std::string::npos) << result.text;
}

TEST(EmulatorCommand, NamesAKernelThatItsLibraryLacks) {
  const Result result = run("TANDEM_EMULATOR_LIBRARY=" TANDEM_FAULTS_LIBRARY, problem);
  EXPECT_NE(result.status, 0);
  EXPECT_NE(result.text.find("holds no kernel forward_bf16_d128"), std::string::npos) << result.text;
}

TEST(EmulatorCommand, NamesAReportThatCantBeWritten) {
  const Result result = run("TANDEM_EMULATOR_REPORT=/nowhere/report", problem);
  EXPECT_NE(result.status, 0);
  EXPECT_NE(result.text.find("can't write /nowhere/report"), std::string::npos) << result.text;
}

TEST(EmulatorCommand, NeedsNoTemporaryFolder) {
  for (const char* command : {"run --random 1,64,1,64 --backend emulator", "run --random 1,64,1,64 --backend cpu"}) {
    const Result result = run("TMPDIR=/nowhere", command);
    EXPECT_EQ(result.status, 0) << result.text;
  }
}

TEST(EmulatorCommand, NamesWhatRuns) {
  const Result result = run("", std::string(problem) + " --explain");
  EXPECT_NE(result.text.find("forward on emulator: forward_bf16_d128"), std::string::npos) << result.text;
  const Result refused = run("", "run --random 1,64,1,64 --softcap 3 --backend emulator");
  EXPECT_NE(refused.text.find("the emulator backend has no softcap"), std::string::npos) << refused.text;
}

TEST(EmulatorCommand, DrawsATimeline) {
  const std::string json = testing::TempDir() + "tandem_trace.json", picture = testing::TempDir() + "tandem_trace.svg";
  const Result result =
      run("", "trace --random 1,384,2,128 --key-heads 1 --key-length 500 --dtype fp16 --window 300,0 --json " + json +
                  " --plot " + picture);
  EXPECT_EQ(result.status, 0) << result.text;
  for (const char* name : {"producer", "consumer 0", "consumer 1", "tensor core", "S = Q K^T (SS), consumer 1",
                           "O += P V (RS), consumer 0", "load key[1]", "wait key_full[0]"}) {
    for (const auto& file : {json, picture}) {
      const Result found = run("", "--version; grep -cF '" + std::string(name) + "' " + file);
      EXPECT_EQ(found.status, 0) << name << " in " << file;
    }
  }
  std::remove(json.c_str());
  std::remove(picture.c_str());
}

}  // namespace
