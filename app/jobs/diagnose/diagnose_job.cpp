#include "app/jobs/diagnose/diagnose_job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "app/jobs/replay/record_job.h"
#include "app/jobs/replay/replay_models.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/temporary_folder.h"
#include "capture/queries.h"
#include "engine/draft/registry.h"
#include "engine/formats/model_file.h"
#include "engine/replay/replay_stats.h"
#include "storage/capture_file.h"

namespace draftscope {
namespace {

/// Our defaults: texts for a replay of each reading in about a second; what makes a fault worth telling.
constexpr int diagnosed_conversations = 24, diagnosed_tokens = 32;
constexpr double smallest_gain = 1.03, chance = 0.05;
/// Best readings whose pairs are tried, and whose distributions are compared.
constexpr std::size_t paired_readings = 2, compared_readings = 4;
constexpr double part_at_z = 2.58;  ///< 1 % of equal rates lie further apart

/// A conversation under one reading.
struct ConversationAcceptance {
    Fraction tau;
    std::vector<Fraction> levels;  ///< overlap of the distributions
    void add(const ConversationAcceptance& other, double times) {
        tau.add(other.tau, times);
        levels.resize(std::max(levels.size(), other.levels.size()));
        for (std::size_t i = 0; i < other.levels.size(); ++i) levels[i].add(other.levels[i], times);
    }
};
using Conversations = std::vector<ConversationAcceptance>;
using AcceptanceValue = std::optional<double> (*)(const ConversationAcceptance&);

std::optional<double> tau_of(const ConversationAcceptance& sum) {
    return sum.tau.value();
}
/// Returns 1 + a1 + a1 a2 + ... for the mean overlap a of each level.
std::optional<double> expected_of(const ConversationAcceptance& sum) {
    if (sum.levels.empty()) return std::nullopt;
    double tokens = 1, accepted = 1;
    for (const Fraction& level : sum.levels) tokens += accepted *= level.value().value_or(0);
    return tokens;
}

std::optional<Estimate> estimate_of(const Conversations& all, AcceptanceValue value) {
    const ResampledStatistic statistic = of_drawn_sum(all, value);
    const auto at = statistic(std::vector<std::uint32_t>(all.size(), 1));
    if (!at) return std::nullopt;
    return bootstrap_estimate(*at, all.size(), statistic);
}

/// A value under one reading over that under another, on the same conversations.
struct Ratio {
    Estimate estimate;
    double p = 1;  ///< probability of such a difference by chance
};
std::optional<Ratio> ratio_of(const Conversations& a, const Conversations& b, AcceptanceValue value) {
    const ResampledStatistic above = of_drawn_sum(a, value), below = of_drawn_sum(b, value);
    const ResampledStatistic statistic = [&](std::span<const std::uint32_t> drawn) -> std::optional<double> {
        const auto x = above(drawn), y = below(drawn);
        return x && y && *y > 0 ? std::optional(*x / *y) : std::nullopt;
    };
    const auto at = statistic(std::vector<std::uint32_t>(a.size(), 1));
    const auto spread =
        at && a.size() == b.size() ? bootstrap_spread(*at, a.size(), statistic) : std::nullopt;
    if (!spread) return std::nullopt;
    const double p = spread->error > 0 ? spread->p_value(*at, 1) : *at == 1 ? 1 : 0;
    return Ratio{{*at, spread->interval(*at)}, p};
}

/// A reading with its replay.
struct Replayed {
    ReadingResult result;
    Conversations conversations;
    ReplayResult replay;
};

/// Returns whether a is better than b beyond chance, in one of `tests` comparisons.
bool is_better(const Replayed& a, const Replayed& b, std::size_t tests, double gain = 1) {
    const auto tau = ratio_of(a.conversations, b.conversations, tau_of),
               expected = ratio_of(a.conversations, b.conversations, expected_of);
    if (!tau) return false;
    const double other = expected ? expected->estimate.value : 1;
    const double p = expected ? std::min(1.0, 2 * std::min(tau->p, expected->p)) : tau->p;
    return std::min(tau->estimate.value, other) >= 1 && std::max(tau->estimate.value, other) > gain &&
           p * static_cast<double>(tests) < chance;
}

bool has_all(const std::vector<OtherValue>& changes, const std::vector<OtherValue>& part) {
    return std::ranges::all_of(part, [&](const OtherValue& one) {
        return std::ranges::any_of(changes, [&](const OtherValue& other) {
            return other.option == one.option && other.value == one.value;
        });
    });
}

std::string tau_text(const ReadingResult& reading) {
    return reading.tau ? estimate_text(*reading.tau, 2) : "-";
}

class Diagnosis {
  public:
    Diagnosis(const DiagnoseConfig& config, const JobHooks& hooks) : config_(config), hooks_(hooks) {
        replay_.model = config.target.model;
        replay_.drafter = config.drafter;
        replay_.tree = config.tree;
        replay_.precision = config.target.precision;
        replay_.threads = config.target.threads;
        report_.drafter = config.drafter;
    }

    Result<DiagnoseReport> run() {
        const TimeNs start = monotonic_ns();
        if (config_.recording.empty() && config_.target.prompts_file.empty())
            return bad_input(
                "diagnose needs texts: name --recording R, or --prompts F for the target to decode");
        if (!config_.rounds.empty()) DS_TRY(read_rounds());
        replay_.max_new = config_.recording.empty() ? 0 : max_new();
        if (replay_.tree.empty())
            replay_.tree = fmt::format("chain={}", std::max<std::size_t>(3, report_.engine.size()));
        DS_TRY(config_.recording.empty() ? decode() : open(config_.recording));
        DS_TRY(replay_readings());
        judge();
        if (config_.recording.empty()) DS_TRY(try_other_prompts());
        note_untested();
        report_.seconds = seconds(monotonic_ns() - start);
        return std::move(report_);
    }

  private:
    int limit() const { return config_.target.limit > 0 ? config_.target.limit : diagnosed_conversations; }
    int max_new() const {
        if (config_.target.max_new > 0) return config_.target.max_new;
        return engine_tokens_ > 0 ? engine_tokens_ : diagnosed_tokens;
    }

    /// Sums the other engine's acceptance by depth. Its texts are replayed as far as they go.
    Status read_rounds() {
        DS_ASSIGN(const auto snapshot, load_capture(config_.rounds));
        for (const RoundEntry& entry : snapshot->rounds)
            add_round(report_.engine, entry.row.tree_depth, entry.row.accepted, entry.row.clipped);
        for (const auto& prompt : snapshot->prompts)
            engine_tokens_ = std::max(engine_tokens_, prompt->generated_tokens);
        if (!report_.engine.empty()) return {};
        return bad_input("--rounds {}: has no rounds with drafts; import an engine's rounds", config_.rounds);
    }

    /// Decodes the target's prompts with the feature layers of every reading.
    Status decode() {
        RunConfig run = config_.target;
        run.drafter = config_.drafter;
        run.max_new = max_new();
        DS_ASSIGN(const ResolvedRun resolved, resolve_run(run));
        DS_ASSIGN(const ModelFile file, open_model_file(resolved.config.model));
        const auto precision = resolved.load_precision().value_or(file.auto_precision());
        DS_ASSIGN(const Readings readings, find_readings(resolved, file.config, precision));
        layers_ = readings.layers.empty() ? "none" : fmt::format("{}", fmt::join(readings.layers, ","));
        return record({}, "texts");
    }
    /// Decodes into a recording of its own and opens it.
    Status record(const RunConfig& variant, const std::string& name) {
        if (!folder_) DS_TRY(folder_.emplace().make("diagnose"));
        RecordConfig record;
        record.run = config_.target;
        record.run.raw = record.run.raw || variant.raw;
        for (const std::string& one : variant.template_switches) record.run.template_switches.push_back(one);
        record.run.limit = limit();
        record.run.max_new = max_new();
        record.run.balanced = true;
        record.out = folder_->file(name);
        record.source = "draftscope diagnose";
        record.aux = layers_;
        record.times = false;
        DS_TRY(run_record(record, hooks_));
        return open(record.out);
    }

    Status open(const std::string& folder) {
        const auto keep = [&](std::vector<RecordedPrompt>& prompts) {
            const std::vector<std::size_t> of = conversation_of_prompts(prompts);
            const std::size_t all = of.empty() ? 0 : of.back() + 1,
                              wanted = std::min<std::size_t>(all, limit());
            std::size_t prompt = 0;
            std::erase_if(prompts, [&](const RecordedPrompt&) {  // evenly over the recording
                const std::size_t at = of[prompt++];
                return (at + 1) * wanted / all == at * wanted / all;
            });
        };
        DS_ASSIGN(recording_, DecodeRecording::open(folder, keep));
        replay_.recording = folder;
        models_.clear();
        conversation_of_ = conversation_of_prompts(recording_->prompts());
        const std::size_t count = conversation_of_.empty() ? 0 : conversation_of_.back() + 1;
        if (count < min_conversations)
            return bad_input("{}: has {} conversations; diagnose needs at least {} conversations", folder,
                             count, min_conversations);
        return {};
    }

    /// Loads the recorded target at a precision, once.
    Result<const ReplayModels*> models_at(const ReplayConfig& config, const ResolvedRun& run) {
        auto found = models_.find(config.precision);
        if (found == models_.end()) {
            DS_ASSIGN(ReplayModels models, load_models(config, run, recording_, hooks_));
            found = models_.emplace(config.precision, std::move(models)).first;
        }
        return &found->second;
    }

    /// Replays a reading. An error of the drafter's files is its result.
    Result<Replayed> replay_reading(const std::vector<OtherValue>& changes, bool overlap) {
        Replayed out;
        out.result.changes = changes;
        DS_ASSIGN(out.result.drafter, changes.empty() ? config_.drafter : changed_drafter(*given_, changes));
        ReplayConfig config = replay_;
        config.drafter = out.result.drafter;
        for (const OtherValue& change : changes)
            if (change.option == precision_option) config.precision = change.value;
        DS_ASSIGN(const std::vector<ResolvedRun> runs, resolve_replayed_heads(config, *recording_));
        if (!given_) DS_TRY(begin(runs.front()));
        DS_ASSIGN(const ReplayModels* models, models_at(config, runs.front()));
        const auto drafting =
            load_draft_models(group_by_drafter(runs).front(), runs, *models, {nullptr, hooks_.cancelled});
        if (!drafting.ok() && drafting.error().kind == ErrorKind::bad_input && !changes.empty()) {
            out.result.refused = drafting.error().message;
            return out;
        }
        if (!drafting.ok()) return drafting.error();
        ReplayOptions options;
        options.tree = runs.front().tree;
        options.max_new = config.max_new;
        options.covered_prob = options.overlap = overlap && !drafting->heads.empty();
        options.cancelled = hooks_.cancelled;
        DS_TRY(check_tree(*drafting->drafter, options.tree));
        DS_ASSIGN(out.replay, replay(*recording_, *models->target, *drafting->drafter, drafting->replayed,
                                     *models->backend, options));
        sum_up(out);
        if (changes.empty()) report_.precision = kernels::to_text(models->precision);
        return out;
    }

    Status begin(const ResolvedRun& run) {
        if (!drafter_traits(run.drafter_id).needs_weights || !run.pair.empty())
            return bad_input("--drafter {}: has no checkpoint to examine; name one, as eagle3:PATH",
                             config_.drafter);
        if (run.tree.topk != 1)
            return bad_input("--tree {}: readings are compared along chains; use chain=3", replay_.tree);
        given_ = run;
        report_.tree = to_text(run.tree);
        return {};
    }

    void sum_up(Replayed& out) const {
        out.conversations.resize(conversation_of_.back() + 1);
        ReplayStats stats;
        for (std::size_t p = 0; p < conversation_of_.size(); ++p) {
            ConversationAcceptance& unit = out.conversations[conversation_of_[p]];
            for (HeadRound& round : out.replay.rounds[0][p]) {
                unit.tau.add({static_cast<double>(round.committed), 1});
                round.covered_mass.reset();  // computed with the distributions only
            }
            stats.add(out.replay.rounds[0][p]);
            const std::vector<LevelOverlap>& levels = out.replay.overlaps[0][p];
            unit.levels.resize(std::max(unit.levels.size(), levels.size()));
            for (std::size_t i = 0; i < levels.size(); ++i)
                unit.levels[i].add({levels[i].alpha_sum, static_cast<double>(levels[i].positions)});
        }
        out.result.depths = stats.depths;
        out.result.tau = estimate_of(out.conversations, tau_of);
        out.result.expected = estimate_of(out.conversations, expected_of);
    }

    /// Replays the checkpoint as given, each other reading, and pairs of those that do not lose.
    Status replay_readings() {
        hooks_.report(-1, "replaying the checkpoint as given");
        DS_ASSIGN(Replayed first, replay_reading({}, true));
        all_.push_back(std::move(first));
        const ReplayModels& models = models_.begin()->second;
        DS_ASSIGN(const Readings readings, find_readings(*given_, models.target->config(), models.precision));
        for (const std::vector<OtherValue>& option : readings.others)
            for (const OtherValue& other : option) DS_TRY(add_reading({other}, 0));
        DS_TRY(compare_distributions());
        std::vector<OtherValue> bases;
        for (const std::size_t i : ranking())
            if (i != 0 && all_[i].result.changes.front().option != precision_option &&
                bases.size() < paired_readings && !is_better(all_[0], all_[i], 1))
                bases.push_back(all_[i].result.changes.front());
        for (const OtherValue& base : bases)
            for (const std::vector<OtherValue>& option : readings.others)
                for (const OtherValue& other : option)
                    if (other.option != base.option && other.option != precision_option)
                        DS_TRY(add_reading({base, other}, place_of({base})));
        return compare_distributions();
    }

    /// Returns the places of all readings, best first.
    std::vector<std::size_t> ranking() const {
        std::vector<std::size_t> order(all_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::stable_sort(
            order, [&](std::size_t a, std::size_t b) { return ranks_before(all_[a], all_[b]); });
        return order;
    }
    std::size_t place_of(const std::vector<OtherValue>& changes) const {
        const auto found = std::ranges::find_if(all_, [&](const Replayed& one) {
            return one.result.changes.size() == changes.size() && has_all(one.result.changes, changes);
        });
        return static_cast<std::size_t>(found - all_.begin());
    }

    /// Also compares the distributions of the best readings, which takes longer than their greedy drafts.
    Status compare_distributions() {
        std::vector<std::size_t> order = ranking();
        order.resize(std::min(order.size(), compared_readings));
        for (const std::size_t i : order) {
            if (all_[i].result.expected) continue;
            hooks_.report(-1, "comparing distributions of " + all_[i].result.name());
            DS_ASSIGN(all_[i], replay_reading(all_[i].result.changes, true));
        }
        return {};
    }

    static bool ranks_before(const Replayed& a, const Replayed& b) {
        const auto value = [](const std::optional<Estimate>& one) { return one ? one->value : 0; };
        return std::pair(value(a.result.tau), value(a.result.expected)) >
               std::pair(value(b.result.tau), value(b.result.expected));
    }

    /// Replays a reading that differs by its last change from reading `from`, unless it was before.
    Status add_reading(const std::vector<OtherValue>& changes, std::size_t from) {
        const OtherValue& last = changes.back();
        const std::string name = fmt::format("{}={}", last.option, last.value);
        if (place_of(changes) < all_.size()) return {};
        if (last.option == "layers" && !is_recorded(last.value)) {
            if (changes.size() == 1) unrecorded_.push_back(last.value);
            return {};
        }
        hooks_.report(-1, "replaying " + name);
        DS_TRY(hooks_.check());
        DS_ASSIGN(Replayed replayed, replay_reading(changes, false));
        const bool refused = !replayed.result.refused.empty();
        const bool equal = !refused && replayed.replay.rounds == all_[from].replay.rounds;
        if (!refused && !equal)
            all_.push_back(std::move(replayed));
        else if (changes.size() == 1 && equal)
            report_.same.push_back(name);
        else if (changes.size() == 1)
            add_note(report_.untested, "{}: {}", name, replayed.result.refused);
        return {};
    }

    bool is_recorded(const std::string& layers) const {
        const auto numbers = parse_numbers(layers, '/', 0, static_cast<int>(max_layers));
        return std::ranges::all_of(*numbers, [&](int layer) {
            return std::ranges::count(recording_->info().aux_layers, layer) > 0;
        });
    }

    /// Ranks the readings and finds the one that fits.
    void judge() {
        std::ranges::stable_sort(all_, ranks_before);
        const auto given =
            std::ranges::find_if(all_, [](const Replayed& one) { return one.result.changes.empty(); });
        report_.given = static_cast<std::size_t>(given - all_.begin());
        for (Replayed& one : all_) {
            if (const auto ratio = ratio_of(one.conversations, given->conversations, tau_of))
                one.result.gain = ratio->estimate;
            if (!report_.engine.empty()) one.result.parts = find_part(one.result.depths);
        }
        // The fewest changes that lose nothing against the best.
        std::size_t best = 0;
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (all_[i].result.changes.size() < all_[best].result.changes.size() &&
                has_all(all_[best].result.changes, all_[i].result.changes) &&
                !is_better(all_[best], all_[i], 1))
                best = i;
        std::size_t second = 0;
        while (second < all_.size() && has_all(all_[second].result.changes, all_[best].result.changes))
            ++second;
        const ReadingResult &fits = all_[best].result, &as_given = given->result;
        std::vector<std::string> faults;
        for (const OtherValue& change : fits.changes) faults.push_back(change.fault);
        const std::string other = second < all_.size() ? all_[second].result.name() : "";
        if (fits.changes.empty() || !is_better(all_[best], *given, all_.size(), smallest_gain)) {
            report_.verdict =
                fmt::format("Nothing wrong found: tau {} as given, and no reading is better beyond chance.",
                            tau_text(as_given));
        } else if (!is_better(all_[best], all_[second], 1)) {
            report_.verdict = fmt::format(
                "Nothing found beyond doubt: {} and {} are better than the checkpoint as given, but these "
                "texts "
                "do not tell them apart; take more with --limit.",
                fits.name(), other);
        } else {
            report_.fits = best;
            report_.verdict = fmt::format("Found: {}: tau {} instead of {}.", fmt::join(faults, ", "),
                                          tau_text(fits), tau_text(as_given));
        }
        for (const RecordedPrompt& prompt : recording_->prompts())
            report_.tokens += replay_.max_new > 0 ? std::min(prompt.generated_tokens, replay_.max_new)
                                                  : prompt.generated_tokens;
        report_.conversations = all_.front().conversations.size();
        report_.source = recording_->info().target.name;
        for (Replayed& one : all_) report_.readings.push_back(std::move(one.result));
    }

    /// Returns the first depth at which the other engine's acceptance rate differs beyond chance; 0 = none.
    int find_part(const std::vector<DepthAcceptance>& depths) const {
        for (std::size_t i = 0; i < std::min(depths.size(), report_.engine.size()); ++i) {
            const DepthAcceptance &a = depths[i], &b = report_.engine[i];
            const double n = static_cast<double>(a.reached), m = static_cast<double>(b.reached);
            if (a.reached == 0 || b.reached == 0) break;
            const double both = static_cast<double>(a.accepted + b.accepted) / (n + m);
            const double error = std::sqrt(both * (1 - both) * (1 / n + 1 / m));
            if (std::abs(a.rate() - b.rate()) > part_at_z * error) return static_cast<int>(i) + 1;
        }
        return 0;
    }

    /// Decodes and replays the same conversations as other prompts.
    Status try_other_prompts() {
        RunConfig bare, raw;
        bare.template_switches = {"add_generation_prompt=false"};
        raw.raw = true;
        if (config_.target.raw) return {};
        const std::size_t best = report_.fits.value_or(report_.given);
        for (const auto& [what, variant] :
             {std::pair("no generation prompt", bare), {"no chat template", raw}}) {
            DS_TRY(record(variant, what));
            DS_ASSIGN(const Replayed other, replay_reading(report_.readings[best].changes, false));
            OtherPrompts prompts{what, other.result.tau, std::nullopt};
            if (const auto ratio = ratio_of(other.conversations, all_[best].conversations, tau_of))
                prompts.gain = ratio->estimate;
            report_.prompts.push_back(std::move(prompts));
        }
        return {};
    }

    void note_untested() {
        if (!unrecorded_.empty())
            add_note(report_.untested,
                     "feature layers {}: the recording has {}; leave out --recording and name --model and "
                     "--prompts",
                     fmt::join(unrecorded_, ", "), fmt::join(recording_->info().aux_layers, ", "));
        if (!config_.recording.empty())
            add_note(
                report_.untested,
                "other prompts (no chat template, no generation prompt): they need the target; leave out "
                "--recording and name --model and --prompts");
        if (drafter_traits(given_->drafter_id).eagle)
            add_note(report_.untested,
                     "an offset of all positions: it has no effect, because the rotation depends on "
                     "distances only");
    }

    const DiagnoseConfig& config_;
    const JobHooks& hooks_;
    ReplayConfig replay_;
    DiagnoseReport report_;
    int engine_tokens_ = 0;                  ///< of the longest text of `rounds`
    std::optional<TemporaryFolder> folder_;  ///< of the recordings that are made
    std::string layers_;                     ///< their feature layers
    std::shared_ptr<const DecodeRecording> recording_;
    std::vector<std::size_t> conversation_of_;    ///< by prompt
    std::map<std::string, ReplayModels> models_;  ///< by precision
    std::optional<ResolvedRun> given_;
    std::vector<Replayed> all_;  ///< the checkpoint as given is the first until they are ranked
    Notes unrecorded_;           ///< feature layers that the recording lacks
};

}  // namespace

std::string ReadingResult::name() const {
    std::vector<std::string> out;
    for (const OtherValue& change : changes) out.push_back(fmt::format("{}={}", change.option, change.value));
    return out.empty() ? "as given" : fmt::format("{}", fmt::join(out, ", "));
}

Result<DiagnoseReport> run_diagnose(const DiagnoseConfig& config, const JobHooks& hooks) {
    return Diagnosis(config, hooks).run();
}

}  // namespace draftscope
