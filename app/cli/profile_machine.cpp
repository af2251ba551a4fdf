#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/cli.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/tables.h"
#include "app/cli/version.h"
#include "app/jobs/profile/profile_job.h"
#include "base/fields.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct ProfileMachineArguments {
    ProfileConfig config;
    JobOutput output;
    std::string show;
    std::vector<std::string> predict;
    double tau = 1, context = 256;
    int batch = 1;
};

std::string error_text(const std::optional<double>& value) {
    return value ? fmt::format("{:.1f} %", 100 * *value) : "-";
}

/// Returns "1.2 + 0.031 row" in milliseconds.
std::string formula(const CostCurve& curve) {
    std::string text;
    for (const TermCost& one : curve.terms) {
        text += text.empty() ? "" : " + ";
        text += fmt::format("{:.4g}", one.ms);
        if (one.term != CostTerm::fixed) text += fmt::format(" {}", to_text(one.term));
    }
    return text.empty() ? "0" : text;
}

void print_profile(const MachineProfile& profile) {
    print("{}: {} profile of {}{}\n", profile.path, to_text(profile.kind), profile.machine,
          profile.complete ? "" : " (incomplete: run the command again)");
    print("model {}{}, {}, {}; source: {}\n", profile.model, profile.synthetic ? " (random weights)" : "",
          profile.precision, profile.backend, profile.source);
    if (profile.other_load > 0.2)
        print("other programs used {:.1f} CPUs meanwhile: the costs are those under this load\n",
              profile.other_load);
    if (!profile.controls.empty()) {
        const auto [min_ms, max_ms] = std::ranges::minmax(profile.controls);
        print("control: a target pass of one row, {:.2f} ms, by session {:.2f} to {:.2f}\n",
              profile.control_ms(), min_ms, max_ms);
    }
    if (profile.is_uncontrolled()) print("{}\n", no_control_text);
    if (!profile.note.empty()) print("note: {}\n", profile.note);
    std::vector<std::vector<std::string>> rows;
    for (const PartCost& cost : profile.costs) {
        rows.push_back({std::string(to_text(cost.part)), or_dash(cost.drafter), or_dash(cost.head),
                        or_dash(cost.size_parameter), std::to_string(cost.curve.points.size()),
                        error_text(cost.curve.error), error_text(cost.curve.worst), formula(cost.curve)});
    }
    print("\n{}", format_table({"part", "drafter", "head", "size", "points", "error", "worst", "ms"}, rows));
    for (const std::string& skipped : profile.skipped) print("skipped {}\n", skipped);
}

constexpr auto step_fields =
    join(DS_FIELDS(StepCost, verify_ms, drafter_ms, head_ms, overhead_ms, error_ms, extrapolated),
         field("step_ms", &StepCost::total_ms));

Result<int> predict(const MachineProfile& profile, const ProfileMachineArguments& options) {
    json list = json::array();
    std::vector<std::vector<std::string>> rows;
    for (const std::string& method : options.predict) {
        DS_ASSIGN(const StepCost cost,
                  predict_method(profile, method, options.tau, options.context, options.batch));
        const double speed = options.tau * options.batch * 1e3 / cost.total_ms();
        json& written = list.emplace_back(write_fields(step_fields, cost));
        written["method"] = method;
        written["tokens_per_second"] = speed;
        rows.push_back({method, number(cost.verify_ms, 2), number(cost.drafter_ms, 2),
                        number(cost.head_ms, 2), number(cost.overhead_ms, 2), number(cost.total_ms(), 2),
                        number(cost.error_ms, 2), number(speed, 1),
                        cost.extrapolated ? "outside the profile's sizes" : ""});
    }
    if (options.output.json) {
        print_document({{"profile", profile.path},
                        {"kind", to_text(profile.kind)},
                        {"tau", options.tau},
                        {"context", options.context},
                        {"batch", options.batch},
                        {"predictions", std::move(list)}});
        return 0;
    }
    print("{} profile of {}; context {}, batch {}, tau {}; milliseconds of a step\n\n", to_text(profile.kind),
          profile.machine, options.context, options.batch, options.tau);
    print("{}",
          format_table({"method", "verify", "drafter", "head", "rest", "step", "+-", "tok/s", ""}, rows));
    return 0;
}

Result<int> show(const ProfileMachineArguments& options) {
    DS_ASSIGN(const MachineProfile profile, read_profile(options.show));
    if (!options.predict.empty()) return predict(profile, options);
    if (options.output.json)
        print_document(json::parse(to_json(profile)));
    else
        print_profile(profile);
    return 0;
}

Result<int> do_profile(ProfileMachineArguments& options) {
    if (!options.show.empty()) return show(options);
    options.config.source = std::string("draftscope ") + version;
    return run_job(
        options.output, [&](const JobHooks& hooks, DebugGate&) { return run_profile(options.config, hooks); },
        [](const MachineProfile& profile) { return json::parse(to_json(profile)); }, print_profile,
        [](const MachineProfile& profile) { return profile.complete ? 0 : 130; });
}

}  // namespace

void add_profile_machine(CLI::App& program, Action& action) {
    auto options = std::make_shared<ProfileMachineArguments>();
    ProfileConfig& config = options->config;
    RunConfig& run = config.run;
    CLI::App* command = program.add_subcommand(
        "profile-machine", "Measure what the parts of a step cost on this machine, as a file for others");
    command->footer(
        "Example: draftscope profile-machine --drafters eagle3 --heads full --contexts 64 --batches 1 "
        "--rounds 6 "
        "--out machine.json  (seconds; with --out alone it takes minutes)");
    auto* out = command->add_option("--out", config.out, "file to write; one that exists is continued");
    add_model_option(*command, run.model);
    add_list(*command, "--drafters,--drafter", config.drafters,
             "NAME[:PATH[,KEY=VALUE...]], a list (default: eagle3,ngram)");
    add_list(*command, "--heads,--head", config.heads, "ids of heads, a list (default: all with weights)");
    command->add_option("--head-weights", run.artefacts, "HEAD=PATH, weights file of a head (repeatable)");
    add_list(*command, "--contexts", config.contexts, "tokens of a prompt, a list (default: 64,256,1024)");
    add_list(*command, "--batches", config.batches, "sequences in lockstep, a list (default: 1,2,4,8)");
    add_shown(*command, "--rounds", config.rounds, "steps of a measurement; fewer if they take long");
    add_shown(*command, "--backend", run.backend, "cpu, cuda, or auto: cuda if there is a GPU");
    add_shown(*command, "--precision", run.precision, "f32, bf16, int8, int4 or auto");
    add_threads_option(*command, run.threads);
    command->add_option("--name", config.name, "name of the machine (default: its CPU or GPU)");
    command->add_option("--note", config.note, "what a reader must know of the machine");
    auto* show = command->add_option("--show", options->show, "print a profile instead of measuring one");
    show->excludes(out);
    auto* predict = command->add_option("--predict", options->predict,
                                        "DRAFTER x HEAD @ TREE: predict the time of its step (repeatable)");
    predict->needs(show);
    add_shown(*command, "--tau", options->tau, "tokens that a predicted step commits of each sequence")
        ->needs(predict);
    add_shown(*command, "--context", options->context, "committed tokens of a predicted step's sequences")
        ->needs(predict);
    add_shown(*command, "--batch", options->batch, "sequences of a predicted step")->needs(predict);
    add_output_options(*command, options->output);
    command->callback([options, command, &action] {
        join_drafters(options->config.drafters);
        check_heads_used(*command, options->config.drafters);
        action = [options] { return do_profile(*options); };
    });
}

}  // namespace draftscope::cli
