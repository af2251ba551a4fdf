#include "tests/support/decode_fixture.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/clock.h"
#include "engine/draft/registry.h"
#include "engine/verify/simulated_acceptance.h"

namespace draftscope::testing {
namespace {

/// Returns the value. An error ends the program with its message; used for set-up that every test needs.
template <typename T>
T must(Result<T> result) {
    if (!result.ok()) {
        ADD_FAILURE() << result.error().message;
        std::abort();
    }
    return std::move(result).value();
}

}  // namespace

PromptList::PromptList(const std::vector<std::vector<TokenId>>& prompts,
                       const std::function<void(std::string_view)>& on_text)
    : prompts_(prompts), on_text_(on_text) {}

std::optional<PromptInput> PromptList::next() {
    if (next_ == prompts_.size()) return std::nullopt;
    PromptInput prompt;
    prompt.id = std::to_string(next_);
    prompt.ordinal = static_cast<int>(next_);
    prompt.tokens = prompts_[next_++];
    return prompt;
}

void PromptList::text(const PromptInput&, std::string_view piece) {
    if (on_text_) on_text_(piece);
}

void PromptList::done(const PromptInput& prompt, PromptOutcome outcome) {
    ended.push_back(*prompt.ordinal);
    outcomes[*prompt.ordinal] = std::move(outcome);
}

std::string to_text(const DecodeCase& setting) {
    return setting.drafter + " x " + setting.head + " x " + setting.tree + " x " +
           std::to_string(setting.threads) + " threads x T=" + fmt::format("{}", setting.temperature) +
           " x batch " + std::to_string(setting.batch) + " x " + setting.verify;
}

DecodeFixture::DecodeFixture(std::unique_ptr<Target> target,
                             std::map<std::string, std::string> drafter_folders, std::string ranking_path)
    : target_(std::move(target)),
      drafter_folders_(std::move(drafter_folders)),
      ranking_path_(std::move(ranking_path)) {}

std::unique_ptr<Target> DecodeFixture::build(ModelFile file, kernels::Precision precision,
                                             kernels::Backend* on) {
    if (on != nullptr) return must(Target::build(std::move(file), *on, precision));
    // Targets outlive this call, and their backends outlive them.
    static auto& backends = *new std::vector<std::unique_ptr<kernels::Backend>>;
    kernels::Backend& backend = *backends.emplace_back(kernels::make_cpu_backend(2));
    std::unique_ptr<Target> target = must(Target::build(std::move(file), backend, precision));
    backend.set_pool(kernels::make_thread_pool(1));
    return target;
}

kernels::Backend& DecodeFixture::exec(int threads) {
    if (on_ != nullptr) return *on_;
    kernels::Backend& backend = target_->backend();
    if (backend.pool().threads() != threads) backend.set_pool(kernels::make_thread_pool(threads));
    return backend;
}

Drafter& DecodeFixture::drafter(const std::string& spec) {
    auto& drafter = drafters_[spec];
    if (drafter != nullptr) return *drafter;
    const std::string id = spec.substr(pair_prefix(spec).size());
    const std::string folder = drafter_folders_[id.substr(0, id.find(':'))];
    const bool is_folder_of_pair = id != spec && id.find(':') == std::string::npos && !folder.empty();
    drafter = must(make_drafter(is_folder_of_pair ? spec + ":" + folder : spec, folder, *target_, exec(1)));
    return *drafter;
}

std::string DecodeFixture::name_of(const std::string& head, const Drafter& drafter) {
    const kernels::Matrix* own = drafter.properties().lm_head;
    return own == nullptr ? head : fmt::format("{} of {}", head, static_cast<const void*>(own));
}

LmHead& DecodeFixture::head(const std::string& spec, Drafter& drafter) {
    const Status ready = prepare_head(spec, drafter);
    if (!ready.ok()) ADD_FAILURE() << ready.error().message;
    return *heads_[name_of(spec, drafter)];
}

Status DecodeFixture::prepare_head(const std::string& spec, Drafter& drafter) {
    auto& head = heads_[name_of(spec, drafter)];
    if (head != nullptr) return {};
    const HeadSpec parsed = must(parse_head_spec(spec));
    const auto artefact = artefacts_.find(parsed.id);
    HeadFiles files{ranking_path_};
    if (artefact != artefacts_.end()) files.artefact_path = artefact->second;
    if (const auto affinity = artefacts_.find("rdk"); affinity != artefacts_.end())
        files.affinity_path = affinity->second;
    head = must(make_head(parsed, files));
    HeadWeights weights;
    weights.lm_head =
        drafter.properties().lm_head == nullptr ? &target_->lm_head() : drafter.properties().lm_head;
    weights.row_ids = drafter.properties().lm_head_ids;
    weights.vocab = target_->config().vocab;
    if (weights.row_ids.empty()) weights.vocab = std::min(weights.vocab, weights.lm_head->n());
    weights.hidden = weights.lm_head->k();
    weights.drafter_bytes =
        static_cast<double>(drafter.properties().weight_bytes + drafter.properties().feature_weight_bytes);
    if (target_->tokenizer() != nullptr) {
        weights.vocab = std::min(weights.vocab, target_->tokenizer()->size());
        weights.always_active = target_->tokenizer()->eos();
    }
    return head->prepare(exec(1), weights);
}

std::unique_ptr<DecodeSession> DecodeFixture::open(const DecodeCase& setting, RecordSink* sink,
                                                   PhaseRecorder& phases) {
    Drafter& with = drafter(setting.drafter);
    LmHead* driving = with.uses_head() ? &head(setting.head, with) : nullptr;
    LmHead* full = with.uses_head() ? &head("full", with) : nullptr;
    DecodeOptions options;
    options.tree = must(parse_tree_spec(setting.tree));
    options.sampling = {setting.temperature, setting.top_p, setting.top_k, setting.seed};
    options.rule = must(make_rule(setting.verify));
    if (auto simulated = must(parse_acceptance(setting.acceptance, "full")))
        options.rule = make_simulated_rule(std::move(*simulated), options.rule);
    options.batch = setting.batch;
    options.max_new = setting.max_new;
    options.ignore_eos = setting.ignore_eos;
    options.warmup_steps = setting.warmup_steps;
    options.span_interval = setting.span_interval;
    options.calibration_rounds = setting.calibration_rounds;
    options.full_shadow_ns = setting.full_shadow_ns;
    options.record_nodes = setting.record_nodes;
    for (const std::string& spec : setting.shadows) {
        const bool aligned = spec.starts_with("aligned:");
        const std::string plain = aligned ? spec.substr(8) : spec;
        options.shadows.push_back({plain, &head(plain, with), aligned});
    }
    CaptureOutput capture_output{.sink = sink,
                                 .ids = sink == nullptr ? nullptr : &ids_,
                                 .run_id = 1,
                                 .run_start = monotonic_ns(),
                                 .head_text = driving == nullptr ? "" : setting.head};
    return std::make_unique<DecodeSession>(DecodeSetup{*target_, with, driving, full, exec(setting.threads),
                                                       phases, gate_, options, capture_output});
}

std::vector<PromptOutcome> DecodeFixture::decode(const DecodeCase& setting,
                                                 const std::vector<std::vector<TokenId>>& prompts,
                                                 RecordSink* sink,
                                                 const std::function<void(std::string_view)>& on_text) {
    PromptList list(prompts, on_text);
    const Error error = run(setting, list, sink);
    if (error.message != "no error") ADD_FAILURE() << to_text(setting) << ": " << error.message;
    std::vector<PromptOutcome> outcomes;
    for (auto& [place, outcome] : list.outcomes) outcomes.push_back(std::move(outcome));
    return outcomes;
}

Error DecodeFixture::run(const DecodeCase& setting, PromptFeed& feed, RecordSink* sink) {
    PhaseRecorder phases;
    phases.set_range_sink(listener_);
    const auto session = open(setting, sink, phases);
    const Status status = session->run(feed);
    totals_ = session->totals();
    return status.ok() ? Error{ErrorKind::failed, "no error"} : status.error();
}

Error DecodeFixture::decode_error(const DecodeCase& setting, const std::vector<TokenId>& prompt) {
    const std::vector<std::vector<TokenId>> prompts = {prompt};
    PromptList list(prompts);
    return run(setting, list);
}

}  // namespace draftscope::testing
