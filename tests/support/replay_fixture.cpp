#include "tests/support/replay_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/draft/registry.h"

namespace draftscope::testing {

std::optional<PromptInput> TokenFeed::next() {
    if (next_ == prompts_.size()) return std::nullopt;
    PromptInput input;
    input.id = std::to_string(next_);
    input.ordinal = static_cast<int>(next_);
    input.tokens = prompts_[next_++];
    return input;
}

std::vector<std::vector<HeadRound>> live_rounds(DecodeFixture& fixture, const DecodeCase& setting,
                                                const std::vector<std::vector<TokenId>>& prompts) {
    RecordList records;
    fixture.decode(setting, prompts, &records);
    const auto list = records.take();
    std::map<RowId, std::size_t> place;
    std::vector<std::vector<HeadRound>> out(prompts.size());
    for (const auto& started : RecordList::of<PromptStarted>(list))
        place.emplace(started.prompt.id, static_cast<std::size_t>(std::stoi(started.prompt.external_id)));
    for (const StepRecord& step : RecordList::of<StepRecord>(list)) {
        for (const RoundRecord& record : step.rounds) {
            const RoundRow& row = record.round;
            HeadRound round;
            round.prefix = row.context_length;
            round.tree_nodes = row.tree_nodes;
            round.tree_depth = row.tree_depth;
            round.accepted = row.accepted;
            round.committed = row.committed;
            round.clipped = row.clipped;
            round.drafter = row.drafter.empty() ? "" : find_drafter(row.drafter)->id;
            round.covered = row.committed;
            for (const HeadEvalRow& eval : record.head_evals) {
                if (eval.mode != HeadMode::drive) continue;
                round.covered = eval.covered;
                round.covered_mass = eval.covered_mass;
                round.active_rows = eval.active_rows;
                round.row_tokens = eval.row_tokens.value_or(0);
                round.bytes = static_cast<std::uint64_t>(eval.bytes);
            }
            out[place.at(row.prompt_id)].push_back(round);
        }
    }
    return out;
}

std::shared_ptr<const DecodeRecording> record(DecodeFixture& fixture, const DecodeCase& setting,
                                              const std::vector<std::vector<TokenId>>& prompts,
                                              const std::vector<int>& aux_layers, const std::string& folder,
                                              int batch) {
    RecordingInfo info;
    info.source = "test";
    info.target = describe_target(fixture.target());
    info.sampling = {setting.temperature, setting.top_p, setting.top_k, setting.seed};
    info.max_new = setting.max_new;
    info.ignore_eos = setting.ignore_eos;
    info.aux_layers = aux_layers;
    info.precision = std::string(kernels::to_text(fixture.target().precision()));
    auto writer = RecordingWriter::create(folder, info, false);
    if (!writer.ok()) return ADD_FAILURE() << writer.error().message, nullptr;
    TokenFeed feed(prompts);
    RecordOptions options;
    options.batch = batch;
    const Status recorded = record_decode(fixture.target(), fixture.exec(2), feed, options, **writer);
    if (!recorded.ok()) return ADD_FAILURE() << recorded.error().message, nullptr;
    const Status finished = (*writer)->finish();
    if (!finished.ok()) return ADD_FAILURE() << finished.error().message, nullptr;
    auto recording = DecodeRecording::open(folder);
    if (!recording.ok()) return ADD_FAILURE() << recording.error().message, nullptr;
    return *recording;
}

std::vector<std::vector<HeadRound>> replayed_rounds(DecodeFixture& fixture, const DecodeRecording& recording,
                                                    const Target& recorded_target, Drafter& drafter,
                                                    LmHead* head, const DecodeCase& setting,
                                                    ReplayOptions options) {
    auto tree = parse_tree_spec(setting.tree);
    if (!tree.ok()) return ADD_FAILURE() << tree.error().message, std::vector<std::vector<HeadRound>>();
    options.tree = *tree;
    std::vector<ReplayHead> heads;
    if (head != nullptr) heads.push_back({head, setting.head.starts_with("oracle")});
    auto result = replay(recording, recorded_target, drafter, heads, fixture.exec(setting.threads), options);
    if (!result.ok()) return ADD_FAILURE() << result.error().message, std::vector<std::vector<HeadRound>>();
    return result->rounds.front();
}

std::string round_text(const HeadRound& round) {
    return fmt::format("at {}: {} nodes, depth {}, accepted {}, committed {}, covered {}{}{}", round.prefix,
                       round.tree_nodes, round.tree_depth, round.accepted, round.committed, round.covered,
                       round.clipped ? ", clipped" : "", round.drafter);
}

std::vector<std::string> round_texts(const std::vector<HeadRound>& rounds) {
    std::vector<std::string> out;
    for (const HeadRound& round : rounds) out.push_back(round_text(round));
    return out;
}

}  // namespace draftscope::testing
