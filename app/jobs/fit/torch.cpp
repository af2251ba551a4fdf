#include "app/jobs/fit/torch.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/assets.h"
#include "base/child_process.h"
#include "base/user_folders.h"
#include "engine/formats/model_file.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view error_mark = "error ";

/// Returns the message of the script if it refuses, or why it does not run; "" if all is well.
std::string refusal(const Torch& torch) {
    std::string message;
    const auto code = run_child_process(
        {torch.python, torch.script, "fit", "--check"},
        [&](std::string_view line) {
            if (line.starts_with(error_mark)) message = line.substr(error_mark.size());
        },
        [] { return false; });
    if (!code.ok()) return code.error().message;
    if (message.empty() && *code != 0) return fmt::format("{}: exit code {}", torch.python, *code);
    return message;
}

/// Removes the files of a training, except the checkpoint of one that did not end.
class TrainingFolder {
  public:
    explicit TrainingFolder(std::string path) : path_(std::move(path)) {}
    ~TrainingFolder() {
        std::error_code ignored;
        const bool resumable = !done && fs::exists(file("state.pt"), ignored);
        for (const char* name : {"data.safetensors", "result.safetensors"}) fs::remove(file(name), ignored);
        if (!resumable) fs::remove_all(path_, ignored);
    }
    std::string file(const char* name) const { return (fs::path(path_) / name).string(); }

    bool done = false;

  private:
    std::string path_;
};

Result<fit::Trained> read_result(const std::string& path) {
    DS_ASSIGN(const auto file, open_safetensors(path));
    fit::Trained trained;
    for (const std::string& name : file->names()) {
        const TensorInfo& info = *file->find(name);
        fit::Dense values(static_cast<int>(info.rows()), static_cast<int>(info.cols()));
        for (int r = 0; r < values.rows; ++r) file->read_row(info, r, values.row(r).data());
        trained.parameters[name] = std::move(values);
    }
    const auto notes = nlohmann::json::parse(file->metadata("notes"), nullptr, false);
    if (!notes.is_object()) return failed("{}: its metadata lacks the notes of the training", path);
    for (const auto& [name, value] : notes.items())
        if (value.is_number()) trained.notes[name] = value.get<double>();
    return trained;
}

}  // namespace

Result<Torch> find_torch(const std::string& python) {
    Torch torch{python, find_asset("../tools/train_drafter.py")};
    if (torch.script.empty())
        return bad_input(
            "tools/train_drafter.py is missing; it belongs beside the assets folder (DRAFTSCOPE_ASSETS)");
    std::error_code error;
    if (torch.python.empty()) {
        const fs::path own = cache_folder() / "python" / "bin" / "python";
        torch.python = fs::exists(own, error) ? own.string() : "python3";
    }
    const std::string problem = refusal(torch);
    if (problem.empty()) return torch;
    const std::string installer = find_asset("../tools/with_torch.sh");
    return bad_input("{}; {} installs PyTorch, or give --python PYTHON that has it", problem, installer);
}

Result<fit::Trained> train_with_torch(const Torch& torch, const TorchRun& run, const fit::TrainingData& data,
                                      const JobHooks& hooks) {
    TrainingFolder folder(run.folder);
    std::error_code error;
    fs::create_directories(run.folder, error);
    if (error) return failed("{}: {}", run.folder, error.message());
    hooks.report(-1, "writing the rows for PyTorch");
    DS_TRY(save_safetensors(folder.file("data.safetensors"), data.tensors(), data.settings));
    std::string message;
    const auto on_line = [&](std::string_view line) {
        if (line.starts_with(error_mark)) message = line.substr(error_mark.size());
        const std::size_t space = line.find(' ');
        if (!line.starts_with("0.") && !line.starts_with("1.")) return;
        hooks.report(std::strtod(std::string(line.substr(0, space)).c_str(), nullptr),
                     std::string(line.substr(std::min(space + 1, line.size()))));
    };
    DS_ASSIGN(const int code,
              run_child_process({torch.python, torch.script, "fit", "--folder", run.folder, "--device",
                                 run.device, "--threads", std::to_string(run.threads)},
                                on_line, [&] { return hooks.cancelled && hooks.cancelled(); }));
    DS_TRY(hooks.check());
    if (!message.empty()) return bad_input("{}", message);
    if (code != 0)
        return failed("{} {}: training ended with exit code {}; its message is above", torch.python,
                      torch.script, code);
    DS_ASSIGN(fit::Trained trained, read_result(folder.file("result.safetensors")));
    folder.done = true;
    return trained;
}

}  // namespace draftscope
