#include <algorithm>

#include "app/jobs/kernels/kernels_job.h"
#include "app/jobs/resolve/assets.h"
#include "base/child_process.h"
#include "base/fields.h"

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
    const auto file = JsonFile::parse(document, "--torch");
    TorchTimes peer;
    const auto read = [&]() -> Status {
        if (!file) return failed("it is no object");
        DS_TRY(
            read_fields(required(join(field("torch", &TorchTimes::version), DS_FIELDS(TorchTimes, device))),
                        *file, peer));
        DS_ASSIGN(const std::vector<JsonFile> ops, file->objects("ops"));
        for (const JsonFile& one : ops)
            DS_TRY(read_fields(required(DS_FIELDS(TorchTime, op, rows, median_us, best_us)), one,
                               peer.ops.emplace_back()));
        return {};
    };
    if (!read().ok()) return failed("--torch: the script's output is not its JSON document");
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
