#include "app/jobs/controller/choices.h"
#include "app/jobs/kernels/kernels_job.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/resolve.h"
#include "engine/draft/registry.h"
#include "stats/machine_profile.h"
#include "stats/sweep_table.h"

namespace draftscope {
namespace {

/// Adds the mistake of a field, if `check` refuses its value. An empty field has none.
void check_field(std::vector<Mistake>& out, const char* field, const std::string& value,
                 const std::function<Status(const std::string&)>& check) {
    const auto message = [&](const std::string& text) {
        const Status status = check(text);
        return status.ok() ? std::string() : status.error().message;
    };
    if (const std::string first = value.empty() ? "" : message(value); !first.empty())
        out.push_back({field, first, nearest_valid(value, first, message)});
}

Status valid_recording(const std::string& folder) {
    if (file_exists(folder + "/trace.json")) return {};
    return bad_input(
        "{}", file_exists(folder) ? "is not a recording: it has no trace.json" : "no such file or folder");
}

Status valid_profile(const std::string& path) {
    if (!file_exists(path)) return bad_input("no such file");
    DS_ASSIGN([[maybe_unused]] const MachineProfile profile, read_profile(path));
    return {};
}

Status valid_drafters(const std::string& list) {
    RunConfig config;
    for (const std::string& one : split_drafters(list)) {
        config.drafter = one;
        for (const Mistake& mistake : find_mistakes(config))
            if (mistake.field == "Drafter") return bad_input("{}", mistake.message);
    }
    return {};
}

Status valid_heads(const std::string& list) {
    for (const std::string& specs : split_specs(list))
        for (const std::string& one : expand_alternatives(specs)) {
            DS_ASSIGN(const HeadSpec spec, parse_head_spec(one));
            DS_TRY(check_head_spec(spec));
        }
    return {};
}

Status valid_folder_of(const std::string& file) {
    const std::string folder = file.substr(0, file.rfind('/') + 1);
    if (folder.empty() || file_exists(folder)) return {};
    return bad_input("{}: no such folder", folder);
}

void check_numbers(const KernelSettings& settings, std::vector<Mistake>& out) {
    const Status status = check_kernel_settings(settings);
    if (status.ok()) return;
    const std::string& message = status.error().message;
    out.push_back({"", message, message.ends_with("at least 1") ? "1" : ""});
    for (const auto& [option, field] : {std::pair("--vocab", "V"), {"--hidden", "d"}, {"--gather", "rows"}})
        if (message.starts_with(option)) out.back().field = field;
}

}  // namespace

FormCheck check_forms(const FormValues& values) {
    FormCheck out{values, find_mistakes(values.run)};
    check_field(out.run, "Capture file", values.run.save, valid_folder_of);
    if (values.sweep) {
        check_field(out.sweep, "Recording", values.sweep->recording, valid_recording);
        check_field(out.sweep, "Costs", values.sweep->profile, valid_profile);
        check_field(out.sweep, "Drafters", values.sweep->drafters, valid_drafters);
        check_field(out.sweep, "Heads", values.sweep->heads, valid_heads);
    }
    if (values.kernels) check_numbers(*values.kernels, out.kernels);
    for (auto* mistakes : {&out.run, &out.sweep, &out.kernels})
        for (Mistake& mistake : *mistakes) mistake.message = to_window_words(without_option(mistake.message));
    return out;
}

}  // namespace draftscope
