#include "app/jobs/kernels/torch_times.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/assets.h"
#include "base/child_process.h"

namespace draftscope {
namespace {

/// Runs a program and returns its stdout.
Result<std::string> capture_output(const std::vector<std::string>& words) {
    std::string output;
    const auto code = run_child_process(
        words, [&](std::string_view line) { output.append(line).push_back('\n'); }, [] { return false; });
    if (!code.ok()) return bad_input("--torch {}", code.error().message);
    if (*code == 0) return output;
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
        return measured.mode == "cold" && one.rows == measured.rows &&
               (measured.op == one.op || measured.op.starts_with(one.op + " "));
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
    const auto list = [](const std::vector<int>& values) {
        return fmt::format("{}", fmt::join(values, ","));
    };
    DS_ASSIGN(const std::string output,
              capture_output({python, path, "--vocab", std::to_string(options.vocab), "--hidden",
                              std::to_string(options.hidden), "--rank", list(options.rank), "--trimmed",
                              std::to_string(options.trimmed), "--gather", list(options.gather), "--k",
                              std::to_string(options.k), "--rows", list(options.rows)}));
    return parse_torch(output);
}

}  // namespace draftscope
