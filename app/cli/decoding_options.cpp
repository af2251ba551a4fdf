#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "app/cli/options.h"
#include "base/cpus.h"
#include "base/log.h"
#include "base/parse.h"
#include "engine/draft/registry.h"
#include "engine/heads/registry.h"
#include "engine/verify/acceptance_rule.h"

namespace draftscope::cli {
namespace {

std::string known_drafters() {
    std::string names;
    for (const DrafterInfo& info : drafter_registry())
        names += (names.empty() ? "" : ", ") + std::string(info.id);
    return names;
}

/// Replaces an alias of a verification rule by the rule's name; other texts stay.
std::string to_canonical_rule(std::string& rule) {
    if (const RuleInfo* found = find_rule(rule)) rule = found->id;
    return {};
}

/// Returns "match, exact or greedy (SUMMARY), pq or rejection (SUMMARY) or typical[:PARAMETERS] (SUMMARY)".
std::string known_rules() {
    const auto join = [](const std::vector<std::string>& items) {
        std::string text;
        for (std::size_t i = 0; i < items.size(); ++i)
            text += (i == 0 ? "" : i + 1 < items.size() ? ", " : " or ") + items[i];
        return text;
    };
    std::vector<std::string> rules;
    for (const RuleInfo* rule : rule_registry()) {
        if (rule->is_simulated()) continue;
        std::vector<std::string> names = {std::string(rule->id)};
        if (!rule->parameters.empty()) names[0] += fmt::format("[:{}]", rule->parameters);
        names.insert(names.end(), rule->aliases.begin(), rule->aliases.end());
        rules.push_back(fmt::format("{} ({})", join(names), rule->summary));
    }
    return join(rules);
}

}  // namespace

std::string known_heads() {
    std::string names;
    for (const HeadInfo& info : head_registry()) names += (names.empty() ? "" : ", ") + std::string(info.id);
    return names;
}

void add_template_options(CLI::App& command, RunConfig& config) {
    command.add_flag("--raw", config.raw,
                     "no chat template: prompts are sent as they are, control tokens included");
    command.add_option("--template", config.template_switches,
                       "KEY=VALUE, a variable of the chat template (repeatable), e.g. enable_thinking=false; "
                       "date=today or date=YYYY-MM-DD sets the day that a template writes (default: "
                       "2024-07-26)");
    command.add_option("--system", config.system,
                       "system turn of every conversation (default: the chat template's own, if any)");
}

void add_model_option(CLI::App& command, std::string& model) {
    command.add_option("--model", model,
                       "target: a GGUF file, a model folder or synthetic:NAME (default: the demo model)");
}

void add_threads_option(CLI::App& command, int& threads) {
    const auto cut = [](std::string& value) {
        const int cores = usable_cores();
        const auto wanted = parse_number<int>(value);
        if (!wanted || *wanted <= cores) return std::string();
        log_warning("--threads {}: this process may use {} CPU{}; {} run{}", *wanted, cores,
                    cores == 1 ? "" : "s", cores, cores == 1 ? "s" : "");
        value = std::to_string(cores);
        return std::string();
    };
    command.add_option("--threads", threads, "worker threads; default and maximum: one per core")
        ->transform(CLI::Validator(cut, ""));
}

Status check_sampling_used(const RunConfig& config, std::span<const std::string> heads) {
    if (config.temperature != 0) return {};
    const RunConfig defaults;
    const bool replayed = config.acceptance != defaults.acceptance;  // draws acceptance from the seed
    for (const auto& [used, option] : {std::pair(config.top_p != defaults.top_p, "--top-p"),
                                       {config.top_k != defaults.top_k, "--top-k"},
                                       {config.seed != defaults.seed && !replayed, "--seed"}})
        if (used)
            return bad_input(
                "{}: has no effect at temperature 0, which is greedy; leave it out or give --temperature",
                option);
    const bool spreads = std::any_of(heads.begin(), heads.end(), [](const std::string& head) {
        return head.find("+rdk") != std::string::npos;
    });
    if (spreads) return {};
    DS_ASSIGN(const RulePtr rule, make_rule(config.verify));
    if (rule->text() == defaults.verify) return {};
    return bad_input(
        "--verify {}: at temperature 0 every rule is greedy exact match; leave it out or give --temperature",
        config.verify);
}

void join_drafters(std::vector<std::string>& pieces) {
    if (!pieces.empty()) pieces = split_drafters(fmt::format("{}", fmt::join(pieces, ",")));
}

void check_heads_used(const CLI::App& command, const std::vector<std::string>& drafters) {
    const auto uses_head = [](const std::string& drafter) { return drafter_traits(drafter).uses_head; };
    if (drafters.empty() || std::ranges::any_of(drafters, uses_head)) return;
    for (const char* name : {"--head", "--shadow", "--head-weights"})
        if (const CLI::Option* option = command.get_option_no_throw(name);
            option != nullptr && option->count() > 0)
            throw CLI::ValidationError(
                "--" + option->get_lnames().front(),
                fmt::format("drafter {} has no LM head; leave it out or choose another drafter",
                            drafter_id(drafters.front())));
}

void add_prompt_options(CLI::App& command, RunConfig& config) {
    auto* prompt = command.add_option("--prompt", config.prompt, "one prompt");
    auto* prompts =
        command.add_option("--prompts", config.prompts_file,
                           "prompts, chat messages or turns: JSONL or a JSON array; - = standard input");
    prompts->excludes(prompt);
    command.add_option("--limit", config.limit, "conversations taken from the file (0 = all)")
        ->needs(prompts);
    command
        .add_flag("--balanced,--stratify", config.balanced,
                  "take them evenly from the tasks (MT-Bench is one)")
        ->needs(prompts);
}

void add_sampling_options(CLI::App& command, RunConfig& config) {
    add_shown(command, "--temperature", config.temperature, "0 = greedy");
    add_shown(command, "--top-p", config.top_p, "nucleus sampling, 1 = off");
    add_shown(command, "--top-k", config.top_k, "0 = off");
    add_shown(command, "--seed", config.seed, "seed of the sampling");
    add_shown(command, "--max-new", config.max_new, "tokens to generate per prompt");
    command.add_option("--context", config.context,
                       "limit of a sequence's positions, prompt included (default: the model's)");
}

void add_decoding_options(CLI::App& command, RunConfig& config) {
    add_model_option(command, config.model);
    config.drafter = auto_drafter;
    add_shown(
        command, "--drafter,--drafters", config.drafter,
        "NAME[:PATH[,KEY=VALUE...]], one of " + known_drafters() +
            "; auto: eagle3 where its checkpoint comes with the target, else suffix; eagle2 and eagle3 "
            "take rope=own|target and embeddings=own|target, eagle2 also features=normed|raw, eagle3 also "
            "layers=1/12/21 (that the features enter), recycle=raw|normed, residual=raw|normed, "
            "head=own|target, d2t=offsets|tokens; pair:suffix+NAME and "
            "pair:ngram+NAME draft each round with the better of two");
    command.add_option("--head-weights,--artefact", config.artefacts,
                       "HEAD=PATH, weights file of a head (repeatable, one per head)");
    command.add_option(
        "--tree", config.tree,
        fmt::format("depth=3,topk=4,nodes=12[,order=fr] | chain=6 | paper:fr-spec ... | choices:mc_sim_7b_63 "
                    "| choices:FILE | adaptive:transformers|exllama|sglang|p-min|confidence|cumulative | "
                    "auto: {} | quick: {}, demo model "
                    "only",
                    measured_tree_name, quick_tree_name));
    add_shown(command, "--verify", config.verify,
              "verification rule: " + known_rules() + ". At temperature 0 all are greedy exact match")
        ->transform(CLI::Validator(to_canonical_rule, ""));
    add_sampling_options(command, config);
    add_shown(command, "--batch", config.batch, "sequences decoded in lockstep; every text stays the same");
    add_shown(command, "--backend", config.backend, "cpu, cuda, or auto: cuda if there is a GPU");
    add_shown(command, "--numerics", config.numerics,
              "exact: the text does not depend on batch and tree; fast or fast:ROWS (GPU): cuBLASLt "
              "computes products of at least ROWS rows (33: our default, not measured), and the run "
              "counts the tokens that exact kernels would not have emitted");
    command.add_flag("!--no-gpu-graphs", config.gpu_graphs,
                     "launch the GPU's ops individually instead of as CUDA graphs");
    // Accepted as before: every round runs on the GPU now.
    command.add_flag("--no-gpu-rounds")->group("");
    command.add_flag("--l2-window", config.l2_window,
                     "keep a head's packed rows in the GPU's L2 with an access-policy window");
    add_shown(command, "--simulate-acceptance,--acceptance", config.acceptance,
              "real, or simulated: rate:R (by depth: rate:0.9/0.8), or trace:FILE from replay --json, "
              "for the driving head or for trace:FILE#HEAD. Times rounds of targets with random "
              "weights; the text means nothing");
    add_shown(
        command, "--precision", config.precision,
        "f32, bf16, int8, int4 or auto: int4 if most weights of the file have four bits (the demo: int8), "
        "int8 if they are quantised otherwise, else bf16");
    add_threads_option(command, config.threads);
    command.add_flag("--pin", config.pin,
                     "pin each worker thread to a CPU, if there are enough; the decoding thread is not "
                     "pinned. Helps if the system migrates threads, hurts if other programs use those CPUs");
    command.add_flag("--ignore-eos", config.ignore_eos, "continue past the end of text");
    add_template_options(command, config);
}

}  // namespace draftscope::cli
