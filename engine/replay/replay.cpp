#include "engine/replay/replay.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/numel.h"
#include "base/result.h"
#include "engine/heads/head.h"
#include "engine/recording/recording.h"
#include "engine/replay/draft_overlap.h"
#include "engine/replay/path_ranks.h"
#include "engine/transformer/target.h"
#include "engine/verify/verify.h"
#include "kernels/host_rows.h"

namespace draftscope {
namespace {

/// The target's distribution after each generated position of a prompt, from recorded hidden states, LM head
/// and recorded sampling. Tokens below 1e-9 are left out: less than 2e-4 of the probability.
class CoveredProbability {
  public:
    /// Scratch memory for all prompts. Allocating it for each would cost as much as the LM head.
    struct Scratch {
        std::vector<float> hidden, logits;
        std::vector<TargetSample> choices;
        std::vector<std::int32_t> best;
    };
    /// For the positions that emitted the first `generated` tokens.
    static Result<CoveredProbability> make(const DecodeRecording& recording, const Target& target,
                                           kernels::Backend& backend, const RecordedPrompt& prompt,
                                           int generated, Scratch& scratch);
    /// Probability of a head's active set after token `row` of the text.
    double of_active_set(int row, const ActiveSet& active);
    /// Returns the sum of min(p, q) over all tokens, for p after token `row` of the text.
    double overlap(int row, const DraftDistribution& q) const;

    std::int64_t rows() const { return static_cast<std::int64_t>(likely_.size()); }
    /// Rows whose best token is the recorded one.
    std::int64_t agreed() const { return agreed_; }

  private:
    std::vector<std::vector<std::pair<TokenId, float>>> likely_;  ///< for each position: id and probability
    int first_row_ = 0;                                           ///< first row, as an index into the text
    std::int64_t agreed_ = 0;
    std::vector<bool> active_;  ///< scratch [vocab]
};

constexpr float negligible = 1e-9f;
constexpr int chunk = 32;  // rows of logits computed together

Result<CoveredProbability> CoveredProbability::make(const DecodeRecording& recording, const Target& target,
                                                    kernels::Backend& backend, const RecordedPrompt& prompt,
                                                    int generated, Scratch& scratch) {
    CoveredProbability covered_prob;
    covered_prob.first_row_ = prompt.prompt_tokens - 1;
    covered_prob.likely_.resize(generated);
    const int d = recording.info().target.hidden, vocab = recording.info().target.tokens,
              columns = target.lm_head().n();
    covered_prob.active_.resize(vocab);
    const Sampling& sampling = recording.info().sampling;
    auto& [hidden, logits, choices, best] = scratch;
    hidden.resize(numel(chunk, d));
    logits.resize(numel(chunk, columns));
    const auto above = [](float p) { return p > negligible; };
    for (int first = 0; first < generated; first += chunk) {
        const int rows = std::min(chunk, generated - first);
        const Rows<float> in(hidden.data(), rows, d), out(logits.data(), rows, columns);
        const std::int64_t at = prompt.first_row + covered_prob.first_row_ + first;
        DS_TRY(recording.hidden(at, in));
        kernels::matmul(backend.pool(), target.lm_head(), in, out);
        const std::vector<TokenPosition> positions(rows);
        sample_tokens(backend, out, vocab, sampling, positions, choices);
        best.resize(rows);
        kernels::argmax(backend.pool(), Rows<const float>(out.data, rows, vocab, out.stride), best);
        const float inverse = sampling.temperature > 0 ? inverse_temperature(sampling) : 1.0f;
        backend.pool().parallel(rows, [&](int r) {
            const TargetSample& choice = choices[r];
            const std::span<float> row(out.row_data(r), vocab);
            // These are the tokens for which target_probability() returns 0.
            for (float& logit : row)
                if (!(logit >= choice.min_logit)) logit = -std::numeric_limits<float>::infinity();
            kernels::exp_row(backend.pool(), row, choice.log_norm / inverse, inverse, row);
            auto& likely = covered_prob.likely_[first + r];
            likely.reserve(std::ranges::count_if(row, above));
            for (TokenId id = 0; id < vocab; ++id)
                if (const float p = row[id]; above(p)) likely.emplace_back(id, std::min(p, 1.0f));
        });
        for (int r = 0; r < rows; ++r)
            covered_prob.agreed_ += recording.best(at + r, 1).front() == best[r] ? 1 : 0;
    }
    return covered_prob;
}

double CoveredProbability::of_active_set(int row, const ActiveSet& active) {
    double sum = 0;
    for (const TokenId id : active.ids) active_[id] = true;
    for (const auto& [id, p] : likely_[row - first_row_])
        if (active.ids.empty() ? active.has(id) : active_[id]) sum += static_cast<double>(p);
    for (const TokenId id : active.ids) active_[id] = false;
    return std::min(sum, 1.0);
}

double CoveredProbability::overlap(int row, const DraftDistribution& q) const {
    double sum = 0;
    auto next = q.tokens.begin();
    for (const auto& [id, p] : likely_[row - first_row_]) {
        std::ptrdiff_t at = id;
        if (!q.tokens.empty()) {
            next = std::lower_bound(next, q.tokens.end(), id);
            if (next == q.tokens.end()) break;
            if (*next != id) continue;
            at = next - q.tokens.begin();
        }
        if (at < std::ssize(q.probs)) sum += static_cast<double>(std::min(p, q.probs[at]));
    }
    return std::min(sum, 1.0);
}

/// Returns the index of each of the drafter's layers among the recorded ones. A missing one has their number.
std::vector<std::size_t> find_layers(const DecodeRecording& recording, const Drafter& drafter) {
    const std::vector<int>& recorded = recording.info().aux_layers;
    std::vector<std::size_t> out;
    for (const int layer : drafter.aux_layers())
        out.push_back(static_cast<std::size_t>(std::ranges::find(recorded, layer) - recorded.begin()));
    return out;
}

/// A prompt of the recording during its replay.
struct Text {
    const RecordedPrompt* prompt = nullptr;
    std::vector<TokenId> tokens;
    std::optional<CoveredProbability> covered_prob;
    std::unique_ptr<DrafterState> drafter;  ///< used by one head after the other
    /// The text was cancelled: the outcome of a round that reaches its end is unknown.
    bool is_cut() const {
        return prompt->finish == Finish::cancelled && static_cast<int>(tokens.size()) >= prompt->rows();
    }
};

/// One head's replay of one prompt.
struct Lane {
    ReplayCursor cursor;
    Text* text = nullptr;
    int processed_slots = 0;         ///< slots that the drafter has processed
    std::vector<float> hidden, aux;  ///< features of the slots that it processes next
};

class Replayer {
  public:
    Replayer(const DecodeRecording& recording, const Target& target, Drafter& drafter,
             std::span<const ReplayHead> heads, kernels::Backend& backend, const ReplayOptions& options)
        : recording_(recording),
          target_(target),
          drafter_(drafter),
          heads_(heads),
          backend_(backend),
          options_(options),
          recorded_layer_(find_layers(recording, drafter)) {
        phases_.set_enabled(false);
    }

    Result<ReplayResult> run() {
        const std::size_t heads = std::max<std::size_t>(heads_.size(), 1);
        result_.rounds.assign(heads, std::vector<std::vector<HeadRound>>(recording_.prompts().size()));
        result_.overlaps.assign(heads, std::vector<std::vector<LevelOverlap>>(recording_.prompts().size()));
        const auto run_and_check = [&](std::span<const std::size_t> group) -> Status {
            DS_TRY(run_group(group));
            return check_agreement();
        };
        DS_TRY(for_each_group(run_and_check));
        if (seen_ > 0) result_.agreement = static_cast<double>(agreed_) / static_cast<double>(seen_);
        return std::move(result_);
    }

    /// path_ranks() of the first head.
    Result<std::vector<PathRanks>> run_ranks() {
        std::vector<PathRanks> ranks(recording_.prompts().size());
        const auto rank = [&](std::span<const std::size_t> group) {
            if (options_.on_progress) options_.on_progress(done_ / static_cast<double>(ranks.size()));
            done_ += static_cast<double>(group.size());
            return rank_group(group, ranks);
        };
        DS_TRY(for_each_group(rank));
        return ranks;
    }

  private:
    Status for_each_group(FunctionRef<Status(std::span<const std::size_t> prompts)> run) const {
        const auto prompts = recording_.prompts();
        const bool in_order = drafter_.properties().order_matters;
        drafter_.begin_run();
        // Texts of similar length end together, so that all lanes of a group stay in use.
        std::vector<std::size_t> order(prompts.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        if (!in_order)
            std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
                return prompts[a].generated_tokens > prompts[b].generated_tokens;
            });
        const std::size_t group = in_order ? 1 : std::max(options_.batch, 1);
        for (std::size_t first = 0; first < order.size(); first += group) {
            const std::size_t count = std::min(group, order.size() - first);
            DS_TRY(run(std::span(order).subspan(first, count)));
        }
        return {};
    }

    /// Every lane commits one token a round, whatever its tree holds, and notes the ranks.
    Status rank_group(std::span<const std::size_t> prompts, std::vector<PathRanks>& ranks) {
        std::vector<Text> texts(prompts.size());
        std::vector<Lane> lanes(prompts.size());
        ReplayRunner runner = make_runner(0);
        const int context = recording_.info().target.context;
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            DS_TRY(open(prompts[i], texts[i]));
            begin(runner, texts[i], lanes[i]);
            ranks[prompts[i]] = {
                lanes[i].cursor.prefix, static_cast<int>(texts[i].tokens.size()), texts[i].is_cut(), {}};
        }
        return draft_all(runner, lanes, [&](std::size_t i) {
            ReplayCursor& cursor = lanes[i].cursor;
            const auto rest = std::span(texts[i].tokens).subspan(cursor.prefix);
            ranks[prompts[i]].positions.push_back(
                rank_path(cursor.job->out, rest, std::max(context - cursor.prefix - 1, 0)));
            ++cursor.prefix;
            cursor.job.reset();
        });
    }

    ReplayRunner make_runner(std::size_t h) {
        return make_runner(heads_.empty() ? ReplayHead() : heads_[h], options_.tree);
    }
    ReplayRunner make_runner(ReplayHead head, const TreeSpec& tree) {
        return {drafter_,
                head,
                backend_,
                phases_,
                tree,
                recording_.info().target.context,
                recording_.info().target.tokens};
    }

    /// Drafts for all lanes in lockstep until each is done, and calls `on_draft` with each lane's number.
    Status draft_all(ReplayRunner& runner, std::span<Lane> lanes,
                     FunctionRef<void(std::size_t lane)> on_draft) {
        std::vector<ReplayCursor*> going;
        std::vector<std::size_t> drafting;
        const auto features = [&](std::size_t i, DraftJob& job) {
            return set_features(lanes[drafting[i]], job);
        };
        while (true) {
            DS_TRY(check_cancelled());
            going.clear();
            drafting.clear();
            for (std::size_t i = 0; i < lanes.size(); ++i) {
                if (lanes[i].cursor.done()) continue;
                going.push_back(&lanes[i].cursor);
                drafting.push_back(i);
            }
            if (going.empty()) return {};
            DS_TRY(runner.draft(going, features));
            for (const std::size_t i : drafting) on_draft(i);
        }
    }

    Status run_group(std::span<const std::size_t> prompts) {
        std::vector<Text> texts(prompts.size());
        for (std::size_t i = 0; i < prompts.size(); ++i) DS_TRY(open(prompts[i], texts[i]));
        for (std::size_t h = 0; h < result_.rounds.size(); ++h) {
            DS_TRY(run_head(h, prompts, texts));
            if (options_.overlap && !heads_.empty() && !heads_[h].needs_future)
                DS_TRY(run_overlap(*heads_[h].head, prompts, texts, result_.overlaps[h]));
            done_ += static_cast<double>(prompts.size());
            if (options_.on_progress)
                options_.on_progress(
                    done_ / static_cast<double>(result_.rounds.size() * result_.rounds.front().size()));
        }
        return {};
    }

    Status open(std::size_t index, Text& text) {
        DS_TRY(check_cancelled());
        text.prompt = &recording_.prompts()[index];
        text.tokens = recording_.tokens(*text.prompt);
        if (options_.max_new > 0 && text.prompt->generated_tokens > options_.max_new)
            text.tokens.resize(text.prompt->prompt_tokens + options_.max_new);
        if (!options_.covered_prob || heads_.empty()) return {};
        DS_ASSIGN(text.covered_prob,
                  CoveredProbability::make(recording_, target_, backend_, *text.prompt,
                                           static_cast<int>(text.tokens.size()) - text.prompt->prompt_tokens,
                                           scratch_));
        agreed_ += text.covered_prob->agreed();
        seen_ += text.covered_prob->rows();
        return {};
    }

    Status run_head(std::size_t h, std::span<const std::size_t> prompts, std::span<Text> texts) {
        ReplayRunner runner = make_runner(h);
        std::vector<std::vector<HeadRound>>& rounds = result_.rounds[h];
        std::vector<Lane> lanes(texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i) begin(runner, texts[i], lanes[i]);
        DraftTree tree;
        DraftCandidates candidates;
        if (options_.on_round) runner.keep_candidates();
        runner.measure(options_.phases);
        return draft_all(runner, lanes, [&](std::size_t i) {
            if (options_.on_round) tree = lanes[i].cursor.job->out;
            if (options_.on_round) candidates = std::move(lanes[i].cursor.job->candidates);
            const std::optional<HeadRound> round = runner.evaluate(lanes[i].cursor);
            if (!round || (round->clipped && texts[i].is_cut())) return;
            rounds[prompts[i]].push_back(*round);
            if (options_.on_round) options_.on_round(h, prompts[i], tree, candidates, *round);
        });
    }

    /// Drafts chains along the texts. A position counts if the drafts before it were accepted.
    Status run_overlap(LmHead& head, std::span<const std::size_t> prompts, std::span<Text> texts,
                       std::vector<std::vector<LevelOverlap>>& sums) {
        const Sampling& sampling = recording_.info().sampling;
        DraftSampling draft_sampling;  // a greedy recording is evaluated at T = 1, where nothing is cut
        if (sampling.temperature > 0)
            draft_sampling = {sampling.temperature, sampling.seed, sampling.top_p, sampling.top_k};
        OverlapHead drafts(head, draft_sampling);
        TreeSpec chain;
        chain.depth = options_.tree.depth;
        chain.topk = 1;
        chain.nodes = chain.levels() + 1;
        ReplayRunner runner = make_runner({&drafts}, chain);
        std::vector<Lane> lanes(texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i) {
            begin(runner, texts[i], lanes[i]);
            const CoveredProbability& p = *texts[i].covered_prob;
            lanes[i].cursor.text.covered_prob = [&drafts, &p, &cursor = lanes[i].cursor,
                                                 &levels = sums[prompts[i]]](int row, const ActiveSet&,
                                                                             int level) {
                const DraftDistribution* const q = drafts.distribution(*cursor.job, level);
                if (q == nullptr) return 0.0;
                if (std::ssize(levels) <= level) levels.resize(numel(level + 1, 1));
                levels[level].alpha_sum += p.overlap(row, *q);
                ++levels[level].positions;
                return 0.0;
            };
        }
        return draft_all(runner, lanes, [&](std::size_t i) { (void)runner.evaluate(lanes[i].cursor); });
    }

    void begin(const ReplayRunner& runner, Text& text, Lane& lane) {
        lane.text = &text;
        lane.cursor.text.tokens = text.tokens;
        lane.cursor.text.prompt_tokens = text.prompt->prompt_tokens;
        lane.cursor.text.ended = true;
        lane.cursor.text.best = [this, &text](int row, int k) {
            return recording_.best(text.prompt->first_row + row, k);
        };
        if (text.covered_prob)
            lane.cursor.text.covered_prob = [&text](int row, const ActiveSet& active, int) {
                return text.covered_prob->of_active_set(row, active);
            };
        // Heads that draft along the same text share the drafter's work.
        if (text.drafter == nullptr)
            text.drafter = drafter_.make_state(static_cast<int>(text.tokens.size()),
                                               heads_.size() > 1 || options_.overlap);
        lane.cursor.drafter = text.drafter.get();
        runner.begin(lane.cursor);
    }

    Status set_features(Lane& lane, DraftJob& job) {
        const int first = lane.processed_slots, rows = lane.cursor.prefix - 1 - first;
        const auto space = [&](std::vector<float>& buffer, int columns) {
            buffer.resize(numel(rows, columns));
            return Rows<float>(buffer.data(), rows, columns);
        };
        if (drafter_.needs_hidden()) {
            const Rows<float> out = space(lane.hidden, recording_.info().target.hidden);
            DS_TRY(recording_.hidden(lane.text->prompt->first_row + first, out));
            job.new_hidden = out;
        }
        if (!drafter_.aux_layers().empty()) {
            const Rows<float> out = space(lane.aux, static_cast<int>(recorded_layer_.size()) * hidden_size());
            DS_TRY(read_aux(lane.text->prompt->first_row + first, out));
            job.new_aux = out;
        }
        lane.processed_slots += rows;
        return {};
    }

    int hidden_size() const { return recording_.info().target.hidden; }

    /// Reads the drafter's layers of the recorded ones.
    Status read_aux(std::int64_t first, Rows<float> out) {
        const int columns = recording_.info().aux_width(), d = hidden_size();
        if (std::ranges::equal(drafter_.aux_layers(), recording_.info().aux_layers))
            return recording_.aux(first, out);
        recorded_.resize(numel(out.rows, columns));
        const Rows<float> all(recorded_.data(), out.rows, columns);
        DS_TRY(recording_.aux(first, all));
        for (int r = 0; r < out.rows; ++r)
            for (std::size_t i = 0; i < recorded_layer_.size(); ++i)
                std::copy_n(all.row_data(r) + recorded_layer_[i] * d, d, out.row_data(r) + i * d);
        return {};
    }

    Status check_cancelled() const {
        if (options_.cancelled && options_.cancelled()) return Error{ErrorKind::cancelled, "stopped"};
        return {};
    }

    Status check_agreement() const {
        // Rounding of the hidden states changes few ties; another model's LM head agrees only by chance.
        if (seen_ < 64 || agreed_ * 2 >= seen_) return {};
        return bad_input(
            "{}: the LM head of {} gives the recorded best token at only {} of {} positions; it is not the "
            "LM head of "
            "the recorded target",
            recording_.folder(), target_.path(), agreed_, seen_);
    }

    const DecodeRecording& recording_;
    const Target& target_;
    Drafter& drafter_;
    std::span<const ReplayHead> heads_;
    kernels::Backend& backend_;
    const ReplayOptions& options_;
    PhaseRecorder phases_;
    ReplayResult result_;
    CoveredProbability::Scratch scratch_;
    std::vector<std::size_t> recorded_layer_;  ///< of the drafter's layers among the recorded ones
    std::vector<float> recorded_;              ///< scratch of read_aux()
    double done_ = 0;
    std::int64_t agreed_ = 0, seen_ = 0;
};

}  // namespace

Status check_recording_features(const DecodeRecording& recording, const Drafter& drafter,
                                std::string_view name) {
    const std::vector<int>& recorded = recording.info().aux_layers;
    const auto has = [&](std::size_t index) { return index < recorded.size(); };
    if (std::ranges::all_of(find_layers(recording, drafter), has)) return {};
    return bad_input(
        "{}/trace.json: aux_layers is {}, drafter {} reads layers {}; record again with --aux {}",
        recording.folder(), recorded.empty() ? "none" : fmt::format("{}", fmt::join(recorded, ", ")), name,
        fmt::join(drafter.aux_layers(), ", "), fmt::join(drafter.aux_layers(), ","));
}

Result<ReplayResult> replay(const DecodeRecording& recording, const Target& target, Drafter& drafter,
                            std::span<const ReplayHead> heads, kernels::Backend& backend,
                            const ReplayOptions& options) {
    return Replayer(recording, target, drafter, heads, backend, options).run();
}

Result<std::vector<PathRanks>> path_ranks(const DecodeRecording& recording, const Target& target,
                                          Drafter& drafter, ReplayHead head, kernels::Backend& backend,
                                          const ReplayOptions& options) {
    ReplayOptions largest = options;
    TreeSpec& tree = largest.tree;
    tree.nodes = tree.topk == 1 ? tree.levels() + 1 : 1 + tree.topk + tree.depth * tree.topk * tree.topk;
    if (tree.nodes > max_tree_nodes)
        return bad_input("depth={},topk={} has {} candidates, more than {}; lower one of them", tree.depth,
                         tree.topk, tree.nodes, max_tree_nodes);
    largest.covered_prob = largest.overlap = false;
    const std::span<const ReplayHead> heads(&head, head.head != nullptr ? 1 : 0);
    return Replayer(recording, target, drafter, heads, backend, largest).run_ranks();
}

}  // namespace draftscope
