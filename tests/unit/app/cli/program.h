#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_model.h"

/// Runs the built program as a shell does.
namespace draftscope::testing {

struct ProcessResult {
    int exit_code = -1;  ///< 128 + signal if a signal ended it
    std::string out, err;
};

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

/// Splits a command line at spaces. Each "{}" stands for the next value, which may contain spaces.
template <typename... Values>
Arguments arguments(const std::string& line, const Values&... values) {
    const std::string given[] = {std::string(values)..., ""};
    std::istringstream pieces(line);
    std::size_t next = 0;
    Arguments words;
    for (std::string word; pieces >> word; words.push_back(word))
        if (const std::size_t at = word.find("{}"); at != std::string::npos)
            word.replace(at, 2, given[next++]);
    return words;
}

struct Child {
    pid_t pid = -1;
    std::string out_path, err_path;

    bool ended() const {
        siginfo_t info{};
        return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               info.si_pid == pid;
    }
    ProcessResult wait() const {
        int status = 0;
        waitpid(pid, &status, 0);
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(out_path),
                read_text(err_path)};
    }
};

struct StartOptions {
    rlim_t largest_file = RLIM_INFINITY;  ///< file size limit in bytes; simulates a full disk
    std::string out = {};                 ///< path for stdout; "" = a file in the folder
    /// Replaces HOME and unsets XDG_CACHE_HOME; null = HOME unset.
    std::optional<const char*> home = {};
    const char* cache = nullptr;  ///< replaces XDG_CACHE_HOME
};

inline Child start(const ScratchFolder& folder, const Arguments& arguments,
                   const StartOptions& options = {}) {
    static int number = 0;
    ++number;
    Child child;
    child.out_path = folder.file("stdout" + std::to_string(number));
    child.err_path = folder.file("stderr" + std::to_string(number));
    std::vector<std::string> words = {std::string(DS_BINARY_DIR) + "/draftscope"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    child.pid = fork();
    if (child.pid == 0) {
        const auto redirect = [](const std::string& path, int to) {
            const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
            dup2(fd, to);
            close(fd);
        };
        redirect(options.out.empty() ? child.out_path : options.out, STDOUT_FILENO);
        redirect(child.err_path, STDERR_FILENO);
        unsetenv("DISPLAY");
        unsetenv("WAYLAND_DISPLAY");
        if (options.home) {
            unsetenv("XDG_CACHE_HOME");
            *options.home != nullptr ? setenv("HOME", *options.home, 1) : unsetenv("HOME");
        }
        if (options.cache != nullptr) setenv("XDG_CACHE_HOME", options.cache, 1);
        if (options.largest_file != RLIM_INFINITY) {
            const rlimit limit{options.largest_file, options.largest_file};
            setrlimit(RLIMIT_FSIZE, &limit);
        }
        execv(argv[0], argv.data());
        _exit(127);
    }
    return child;
}

inline ProcessResult run(const ScratchFolder& folder, const Arguments& arguments,
                         const StartOptions& options = {}) {
    return start(folder, arguments, options).wait();
}

inline std::string tiny_model(const ScratchFolder& folder, int context = 256) {
    TinyModelOptions options;
    options.context = context;
    const std::string path = folder.file("tiny" + std::to_string(context) + ".gguf");
    EXPECT_TRUE(is_ok(write_tiny_gguf(path, 7, options)));
    return path;
}

/// Returns the JSON document that a command printed. Expects success.
inline nlohmann::json parse_output(const ProcessResult& done) {
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return nlohmann::json::parse(done.out, nullptr, false);
}

/// Expects this exit code, an empty stdout, and one line on stderr that contains all `parts`. Notes may come
/// before it.
inline void expect_one_line_error(ProcessResult done, const std::vector<std::string>& parts,
                                  int exit_code = 2) {
    while (done.err.starts_with("warning: ")) done.err.erase(0, done.err.find('\n') + 1);
    EXPECT_EQ(done.exit_code, exit_code) << done.err;
    EXPECT_EQ(done.out, "");
    EXPECT_EQ(done.err.rfind("draftscope: ", 0), 0u) << done.err;
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    for (const std::string& part : parts)
        EXPECT_NE(done.err.find(part), std::string::npos) << part << "\n" << done.err;
}

}  // namespace draftscope::testing
