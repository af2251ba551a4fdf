#include "engine/replay/replay.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/numel.h"
#include "engine/replay/covered_probability.h"

namespace draftscope {
namespace {

/// A prompt of the recording during its replay.
struct Text {
    const RecordedPrompt* prompt = nullptr;
    std::vector<TokenId> tokens;
    std::optional<CoveredProbability> covered_prob;
    std::unique_ptr<DrafterState> drafter;  ///< used by one head after the other
    bool rewinds = false;                   ///< the drafter keeps the slots that all heads share
};

/// One head's replay of one prompt.
struct Lane {
    ReplayCursor cursor;
    Text* text = nullptr;
    int processed_slots = 0;         ///< slots that the drafter has processed
    std::vector<float> hidden, aux;  ///< features of the slots that it processes next
    std::vector<HeadRound>* rounds = nullptr;
};

class Replayer {
  public:
    Replayer(const DecodeRecording& recording, const Target& target, Drafter& drafter,
             std::span<const ReplayHead> heads, kernels::Exec& exec, const ReplayOptions& options)
        : recording_(recording),
          target_(target),
          drafter_(drafter),
          heads_(heads),
          exec_(exec),
          options_(options) {
        phases_.set_enabled(false);
    }

    Result<ReplayResult> run() {
        const auto prompts = recording_.prompts();
        const std::size_t heads = std::max<std::size_t>(heads_.size(), 1);
        result_.rounds.assign(heads, std::vector<std::vector<HeadRound>>(prompts.size()));
        // Texts of similar length end together, so that all lanes of a group stay in use.
        std::vector<std::size_t> order(prompts.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return prompts[a].generated_tokens > prompts[b].generated_tokens;
        });
        const std::size_t group = std::max(options_.batch, 1);
        for (std::size_t first = 0; first < order.size(); first += group) {
            const std::size_t count = std::min(group, order.size() - first);
            DS_TRY(run_group(std::span(order).subspan(first, count)));
            DS_TRY(check_agreement());
        }
        if (seen_ > 0) result_.agreement = static_cast<double>(agreed_) / static_cast<double>(seen_);
        return std::move(result_);
    }

  private:
    Status run_group(std::span<const std::size_t> prompts) {
        std::vector<Text> texts(prompts.size());
        for (std::size_t i = 0; i < prompts.size(); ++i) DS_TRY(open(prompts[i], texts[i]));
        for (std::size_t h = 0; h < result_.rounds.size(); ++h) {
            DS_TRY(run_head(heads_.empty() ? ReplayHead() : heads_[h], prompts, texts, result_.rounds[h]));
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
                  CoveredProbability::make(recording_, target_, exec_, *text.prompt,
                                           static_cast<int>(text.tokens.size()) - text.prompt->prompt_tokens,
                                           scratch_));
        agreed_ += text.covered_prob->agreed();
        seen_ += text.covered_prob->rows();
        return {};
    }

    Status run_head(ReplayHead head, std::span<const std::size_t> prompts, std::span<Text> texts,
                    std::vector<std::vector<HeadRound>>& rounds) {
        const ReplayRunner runner(drafter_, head, exec_, phases_, options_.tree,
                                  recording_.info().target.context, recording_.info().target.tokens);
        std::vector<Lane> lanes(texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i) begin(runner, texts[i], rounds[prompts[i]], lanes[i]);
        std::vector<ReplayCursor*> going;
        std::vector<Lane*> drafting;
        const auto features = [&](std::size_t i, DraftJob& job) { return set_features(*drafting[i], job); };
        while (true) {
            DS_TRY(check_cancelled());
            going.clear();
            drafting.clear();
            for (Lane& lane : lanes) {
                if (lane.cursor.done()) continue;
                going.push_back(&lane.cursor);
                drafting.push_back(&lane);
            }
            if (going.empty()) return {};
            DS_TRY(runner.draft(going, features));
            for (Lane& lane : lanes) {
                std::optional<HeadRound> round = runner.evaluate(lane.cursor);
                if (round && keeps(lane, *round)) lane.rounds->push_back(*round);
            }
        }
    }

    /// The last round of a cancelled text does not count: its outcome is unknown.
    static bool keeps(const Lane& lane, const HeadRound& round) {
        return !round.clipped || lane.text->prompt->finish != Finish::cancelled ||
               static_cast<int>(lane.text->tokens.size()) < lane.text->prompt->rows();
    }

    void begin(const ReplayRunner& runner, Text& text, std::vector<HeadRound>& rounds, Lane& lane) {
        lane.text = &text;
        lane.rounds = &rounds;
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
        if (text.rewinds) {
            drafter_.rewind(*text.drafter);
        } else {
            text.drafter = drafter_.make_state(static_cast<int>(text.tokens.size()));
            text.rewinds = heads_.size() > 1 && drafter_.enable_rewind(*text.drafter);
        }
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
            const Rows<float> out = space(lane.aux, recording_.info().aux_width());
            DS_TRY(recording_.aux(lane.text->prompt->first_row + first, out));
            job.new_aux = out;
        }
        lane.processed_slots += rows;
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
    kernels::Exec& exec_;
    const ReplayOptions& options_;
    PhaseRecorder phases_;
    ReplayResult result_;
    CoveredProbability::Scratch scratch_;
    double done_ = 0;
    std::int64_t agreed_ = 0, seen_ = 0;
};

}  // namespace

Status check_recording_features(const DecodeRecording& recording, const Drafter& drafter,
                                std::string_view name) {
    const std::span<const int> wanted = drafter.aux_layers();
    if (std::ranges::equal(wanted, recording.info().aux_layers) || wanted.empty()) return {};
    const auto list = [](std::span<const int> layers) {
        std::string text;
        for (const int layer : layers) text += (text.empty() ? "" : ", ") + std::to_string(layer);
        return text.empty() ? std::string("none") : text;
    };
    return bad_input(
        "{}/trace.json: aux_layers is {}, drafter {} reads layers {}; record again with --aux {}",
        recording.folder(), list(recording.info().aux_layers), name, list(wanted), list(wanted));
}

Result<ReplayResult> replay(const DecodeRecording& recording, const Target& target, Drafter& drafter,
                            std::span<const ReplayHead> heads, kernels::Exec& exec,
                            const ReplayOptions& options) {
    return Replayer(recording, target, drafter, heads, exec, options).run();
}

}  // namespace draftscope
