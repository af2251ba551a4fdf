#include "app/jobs/kernels/torch_times.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/jobs/run/run_job.h"

extern char** environ;

namespace draftscope {
namespace {

/// Runs a program and returns its stdout. The program inherits our stderr.
Result<std::string> capture_output(std::vector<std::string> words) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return failed("cannot create a pipe to {}: {}", words[0], std::strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    const int started = posix_spawnp(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (started != 0) {
        close(ends[0]);
        return bad_input("--torch {}: cannot be started: {}", words[0], std::strerror(started));
    }
    std::string output;
    std::array<char, 4096> piece{};
    for (;;) {
        const ssize_t count = read(ends[0], piece.data(), piece.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        output.append(piece.data(), count);
    }
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
    return bad_input(
        "--torch {}: the PyTorch script failed (see its message above); give a Python with PyTorch that "
        "sees the GPU, or leave --torch out",
        words[0]);
}

Result<std::string> script() {
    std::string path = find_asset("peers/torch_heads.py");
    if (path.empty())
        return bad_input("--torch: assets/peers/torch_heads.py is missing; set DRAFTSCOPE_ASSETS");
    return path;
}

}  // namespace

const TorchTime* TorchTimes::find(const kernels::DeviceMeasured& measured) const {
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const TorchTime& one) {
        return !measured.torch.empty() && one.op == measured.torch && one.rows == measured.rows;
    });
    return found == ops.end() ? nullptr : &*found;
}

Status check_torch(const std::string& python) {
    DS_ASSIGN(const std::string path, script());
    DS_ASSIGN([[maybe_unused]] const std::string output, capture_output({python, path, "--check"}));
    return {};
}

Result<TorchTimes> parse_torch(const std::string& document) {
    const auto root = nlohmann::json::parse(document, nullptr, false);
    const auto is_op = [](const nlohmann::json& op) {
        return op.is_object() && op.contains("op") && op["op"].is_string() && op.contains("rows") &&
               op["rows"].is_number_integer() && op.contains("median_us") && op["median_us"].is_number() &&
               op.contains("best_us") && op["best_us"].is_number();
    };
    const bool whole = root.is_object() && root.contains("torch") && root["torch"].is_string() &&
                       root.contains("device") && root["device"].is_string() && root.contains("ops") &&
                       root["ops"].is_array() && std::all_of(root["ops"].begin(), root["ops"].end(), is_op);
    if (!whole) return failed("--torch: the script's output is not its JSON document");
    TorchTimes peer{root["torch"], root["device"], {}};
    for (const auto& op : root["ops"])
        peer.ops.push_back({op["op"], op["rows"], op["median_us"], op["best_us"]});
    return peer;
}

Result<TorchTimes> time_torch(const std::string& python, const kernels::DeviceBenchOptions& options) {
    DS_ASSIGN(const std::string path, script());
    const std::string rows = fmt::format("{}", fmt::join(options.rows, ","));
    DS_ASSIGN(
        const std::string output,
        capture_output({python, path, "--vocab", std::to_string(options.vocab), "--hidden",
                        std::to_string(options.hidden), "--rank", std::to_string(options.rank), "--trimmed",
                        std::to_string(options.trimmed), "--gather", std::to_string(options.gather), "--k",
                        std::to_string(options.k), "--rows", rows}));
    return parse_torch(output);
}

}  // namespace draftscope
