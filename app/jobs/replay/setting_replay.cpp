#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/jobs/replay/replay_models.h"
#include "app/jobs/resolve/vocabulary.h"
#include "base/clock.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/drafter.h"
#include "engine/draft/registry.h"
#include "engine/formats/model_file.h"
#include "engine/heads/registry.h"
#include "engine/record/capture_emitter.h"
#include "engine/record/span_collector.h"
#include "engine/sequence/round_rows.h"
#include "engine/verify/tree_path.h"

namespace draftscope {
namespace {

class SettingReplayer {
  public:
    SettingReplayer(const SettingReplay& wanted, RowIds& ids, RecordSink& sink, const JobHooks& hooks)
        : ids_(ids), sink_(sink), hooks_(hooks) {
        config_.recording = wanted.recording;
        config_.model = wanted.model;
        config_.drafter = wanted.drafter;
        if (!wanted.head.empty()) config_.heads = {wanted.head};
        config_.artefacts = wanted.artefacts;
        config_.tree = wanted.tree;
        config_.threads = wanted.threads;
        config_.max_new = wanted.max_new;
        first_round_ = wanted.first_round;
        // One shard for each conversation.
        config_.shard = {static_cast<int>(wanted.conversation) + 1, static_cast<int>(wanted.conversations)};
    }

    Status run() {
        hooks_.report(-1, "opening the recording");
        DS_ASSIGN(auto recording, open_recording(config_));
        DS_ASSIGN(const std::vector<ResolvedRun> runs, resolve_replayed_heads(config_, *recording));
        DS_ASSIGN(models_, load_models(config_, runs.front(), std::move(recording), hooks_));
        DS_ASSIGN(const DraftModels drafting,
                  load_draft_models(group_by_drafter(runs).front(), runs, models_, hooks_));
        const ResolvedRun& run = runs.front();
        DS_TRY(check_tree(*drafting.drafter, run.tree));
        DS_TRY(load_vocabulary(run));
        const std::size_t prompts = models_.recording->prompts().size();
        rounds_.resize(prompts);
        for (const RecordedPrompt& prompt : models_.recording->prompts())
            texts_.push_back(models_.recording->tokens(prompt));
        ReplayOptions options;
        options.tree = run.tree;
        options.batch = static_cast<int>(prompts);
        options.max_new = config_.max_new;
        if (first_round_) options.phases = &phases_;
        options.cancelled = hooks_.cancelled;
        options.on_progress = [this](double fraction) { hooks_.report(fraction, "replaying"); };
        options.on_round = [this](std::size_t, std::size_t prompt, const DraftTree& tree,
                                  const DraftCandidates& candidates,
                                  const HeadRound& round) { add(prompt, tree, candidates, round); };
        DS_TRY(replay(*models_.recording, *models_.target, *drafting.drafter, drafting.replayed,
                      *models_.backend, options));
        if (first_round_)
            for (std::vector<RoundRecord>& rounds : rounds_)
                rounds.resize(std::min<std::size_t>(rounds.size(), 1));
        push(run, drafting.heads.empty() ? std::string() : to_text(*run.head));
        return {};
    }

  private:
    Status load_vocabulary(const ResolvedRun& run) {
        const RowId id = ids_.run + 1;
        if (models_.recording->weights_path().empty()) {
            DS_ASSIGN(const ModelFile file, open_model_file(run.config.model));
            if (file.tokenizer != nullptr) {
                DS_ASSIGN(vocabulary_, make_vocabulary(*file.tokenizer, run.ranking_path, id));
                return {};
            }
        }
        // Without a tokenizer, tokens show their ids.
        auto vocab = std::make_shared<Vocab>();
        vocab->id = id;
        vocab->rows.resize(models_.recording->info().target.tokens);
        for (std::size_t t = 0; t < vocab->rows.size(); ++t) {
            VocabRow& row = vocab->rows[t];
            row.vocab_id = id;
            row.token_id = static_cast<TokenId>(t);
            row.bytes = row.text = fmt::format("[{}]", t);
        }
        vocabulary_.vocab = std::move(vocab);
        return {};
    }

    std::string to_text(std::span<const TokenId> tokens) const {
        std::string out;
        for (const TokenId token : tokens) out += vocabulary_.vocab->rows[token].bytes;
        return out;
    }
    static std::string to_text(const HeadSpec& head) { return draftscope::to_text(head); }

    /// Adds what the target chose along the accepted path: row i of the recording is the state after token i.
    void add(std::size_t prompt, const DraftTree& tree, const DraftCandidates& candidates,
             const HeadRound& round) {
        RoundRecord record;
        record.round.ordinal = static_cast<int>(rounds_[prompt].size());
        record.round.context_length = round.prefix;
        record.round.tree_nodes = round.tree_nodes;
        record.round.tree_depth = round.tree_depth;
        record.round.draft_tokens = round.tree_nodes - 1;
        record.round.accepted = round.accepted;
        record.round.committed = round.committed;
        record.round.clipped = round.clipped;
        record.round.drafter = round.drafter;
        record.nodes = draft_rows(tree);
        const std::span<const TokenId> text = texts_[prompt];
        const std::vector<int> path = follow_path(tree, text.subspan(round.prefix));
        for (std::size_t level = 0; level < path.size(); ++level)
            add_choice(prompt, path[level], round.prefix - 1 + static_cast<int>(level), record);
        for (const int node : path) candidates.set_rank(record.nodes[node]);
        const std::size_t kept = std::min<std::size_t>(path.size(), round.committed + 1);
        for (std::size_t i = 0; i < kept; ++i) record.nodes[path[i]].accepted = true;
        const RecordedPrompt& about = models_.recording->prompts()[prompt];
        for (int i = 0; i < round.committed; ++i) {
            TokenRow row;
            row.position = round.prefix - about.prompt_tokens + i;
            row.token_id = text[round.prefix + i];
            row.source = i < round.accepted ? TokenSource::draft : TokenSource::bonus;
            row.depth = i + 1;
            if (!vocabulary_.ranks.empty()) row.rank = vocabulary_.ranks[row.token_id];
            // The head could propose every accepted draft; the rest of the count is the bonus token's.
            row.covered = i < round.accepted || round.covered == round.committed;
            record.tokens.push_back(row);
        }
        HeadEvalRow eval;
        eval.active_rows = round.active_rows;
        eval.row_tokens = round.row_tokens;
        eval.bytes = static_cast<std::int64_t>(round.bytes);
        eval.accepted = round.accepted;
        eval.committed = round.committed;
        eval.covered = round.covered;
        eval.covered_mass = round.covered_mass;
        record.head_evals.push_back(eval);
        rounds_[prompt].push_back(std::move(record));
        if (!first_round_) return;
        collector_.collect();
        if (spans_.empty()) spans_ = collector_.rows(0, 0, 0);
        collector_.clear();
    }

    /// Sets the target's token after a node of the path, and the probabilities of the node's children.
    void add_choice(std::size_t prompt, int node, int position, RoundRecord& record) const {
        const std::span<const TokenId> text = texts_[prompt];
        if (position + 1 < std::ssize(text)) record.nodes[node].target_token_id = text[position + 1];
        const std::int64_t at = models_.recording->prompts()[prompt].first_row + position;
        const std::vector<TokenId> best = models_.recording->best(at, recording_topk);
        const std::vector<float> logprobs = models_.recording->best_logprobs(at, recording_topk);
        for (int rank = 0; rank < std::ssize(best); ++rank) {
            const float probability = std::exp(logprobs[rank]);
            if (rank < num_top_tokens) record.tops.push_back({0, node, rank, best[rank], probability});
            if (best[rank] == record.nodes[node].target_token_id)
                record.nodes[node].target_token_prob = probability;
            for (NodeRow& child : record.nodes)
                if (child.parent == node && child.token_id == best[rank]) {
                    child.target_prob = probability;
                    child.target_rank = rank;
                }
        }
    }

    RunRow describe(const ResolvedRun& resolved, const std::string& head) {
        const RecordingInfo& info = models_.recording->info();
        RunRow run;
        run.id = ++ids_.run;
        run.started_monotonic = monotonic_ns();
        run.started_utc = utc_text(utc_ns()).text;
        run.frontend = "gui";
        run.target = info.target.name;
        run.drafter = resolved.drafter_name();
        run.head = head;
        run.tree = draftscope::to_text(resolved.tree);
        run.name = head.empty() ? run.drafter : run.drafter + " x " + head;
        run.temperature = info.sampling.temperature;
        run.backend = info.backend.empty() ? "cpu" : info.backend;
        run.precision = std::string(kernels::to_text(models_.precision));
        run.acceptance = "replayed";
        run.vocab_id = run.id;
        nlohmann::json config = {{std::string(replayed_recording_key), config_.recording},
                                 {"max_new", config_.max_new}};
        config[std::string(losslessness_key)] = "exact";  // the text is the target's own
        if (!head.empty())
            config[std::string(head_traits_key)] =
                nlohmann::json::parse(to_json({{head, capture_traits(*resolved.head)}}));
        run.config_json = config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        return run;
    }

    void push(const ResolvedRun& resolved, const std::string& head) {
        const RunRow run = describe(resolved, head);
        const ClockAnchorRow anchor{run.id, run.started_monotonic, utc_ns(), std::nullopt};
        sink_.push(RunStarted{run, vocabulary_.vocab, anchor});
        int steps = 0;
        for (std::size_t p = 0; p < rounds_.size(); ++p) {
            PromptRow prompt = start_prompt(run.id, p);
            for (RoundRecord& record : rounds_[p]) push_round(run, prompt, steps++, std::move(record));
            sink_.push(PromptEnded{prompt});
        }
        sink_.push(RunEnded{run.id, RunEnd::ok, 0, anchor});
    }

    PromptRow start_prompt(RowId run_id, std::size_t place) {
        const RecordedPrompt& from = models_.recording->prompts()[place];
        const std::span<const TokenId> text = texts_[place];
        PromptRow prompt;
        prompt.id = ++ids_.prompt;
        prompt.run_id = run_id;
        prompt.ordinal = static_cast<int>(place);
        prompt.external_id = from.id;
        prompt.turn = from.turn;
        prompt.suite = from.suite;
        prompt.category = from.category;
        prompt.text = to_text(text.first(from.prompt_tokens));
        prompt.prompt_tokens = from.prompt_tokens;
        sink_.push(PromptStarted{prompt});
        int committed = 1;  // the first token is prefill's
        for (const RoundRecord& record : rounds_[place]) committed += record.round.committed;
        prompt.generated_tokens = committed;
        prompt.output = to_text(text.subspan(from.prompt_tokens, committed));
        prompt.finish = from.finish;
        TokenRow first;
        first.prompt_id = prompt.id;
        first.token_id = text[from.prompt_tokens];
        first.source = TokenSource::prefill;
        first.depth = 0;
        sink_.push(PromptProgress{prompt.id, prompt.output, prompt.generated_tokens, 0, {first}});
        return prompt;
    }

    void push_round(const RunRow& run, const PromptRow& prompt, int ordinal, RoundRecord record) {
        StepRecord step;
        step.step.id = ++ids_.step;
        step.step.run_id = run.id;
        step.step.ordinal = ordinal;
        set_ids(record, run.id, step.step.id, ++ids_.round);
        step.spans = std::exchange(spans_, {});
        for (SpanRow& span : step.spans) {
            span.id = ++ids_.span;
            span.run_id = run.id;
            span.step_id = step.step.id;
            span.round_id = record.round.id;
            step.step.end_ns = std::max(step.step.end_ns, span.end_ns);
        }
        if (!step.spans.empty()) step.step.start_ns = step.spans.front().start_ns;
        record.round.prompt_id = prompt.id;
        for (TokenRow& row : record.tokens) row.prompt_id = prompt.id;
        for (HeadEvalRow& row : record.head_evals) row.head = run.head;
        if (run.head.empty()) record.head_evals.clear();
        step.rounds.push_back(std::move(record));
        sink_.push(std::move(step));
    }

    RowIds& ids_;
    RecordSink& sink_;
    const JobHooks& hooks_;
    ReplayConfig config_;
    bool first_round_ = false;
    ReplayModels models_;
    Vocabulary vocabulary_;
    PhaseRecorder phases_;
    SpanCollector collector_{phases_, monotonic_ns()};
    std::vector<SpanRow> spans_;                    ///< of the first round's drafting
    std::vector<std::vector<TokenId>> texts_;       ///< by prompt: prompt and text
    std::vector<std::vector<RoundRecord>> rounds_;  ///< by prompt
};

}  // namespace

Status replay_setting(const SettingReplay& wanted, RowIds& ids, RecordSink& sink, const JobHooks& hooks) {
    return SettingReplayer(wanted, ids, sink, hooks).run();
}

}  // namespace draftscope
