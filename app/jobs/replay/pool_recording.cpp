#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>

#include "app/jobs/replay/replay_job.h"
#include "app/jobs/run/pool.h"
#include "engine/recording/recording_writer.h"
#include "kernels/ops/float16.h"

namespace draftscope {
namespace {

/// The recording of one shard.
struct RecordingShard : ShardFile {
    std::shared_ptr<const DecodeRecording> recording;

    const DecodeRecording* operator->() const { return recording.get(); }
    const DecodeRecording& operator*() const { return *recording; }
};

/// Returns trace.json without what differs from shard to shard.
std::string common_part(RecordingInfo info) {
    info.prompts.clear();
    info.rows = 0;
    info.skipped = 0;
    info.verify_ns.clear();
    info.overhead_ns.reset();
    info.shard_index = info.shard_count = 1;
    return to_json_text(info);
}

/// Checks that two recordings are of one command.
Status check_common(const DecodeRecording& a, const DecodeRecording& b) {
    std::istringstream one(common_part(a.info())), other(common_part(b.info()));
    for (std::string x, y; std::getline(one, x) && std::getline(other, y);)
        if (x != y)
            return bad_input("{} and {} can't be pooled: {} and {}", a.folder(), b.folder(),
                             x.substr(x.find_first_not_of(' ')), y.substr(y.find_first_not_of(' ')));
    if (a.info().shard_count != b.info().shard_count)
        return bad_input("{} and {} can't be pooled: they are of {} and {} shards", a.folder(), b.folder(),
                         a.info().shard_count, b.info().shard_count);
    if (a.weights_path().empty() != b.weights_path().empty())
        return bad_input("{} and {} can't be pooled: one has no weights.safetensors", a.folder(), b.folder());
    return {};
}

/// Returns the recordings in the order of their shards. Each must be there once.
Result<std::vector<RecordingShard>> open_shards(const std::vector<std::string>& folders) {
    std::vector<RecordingShard> shards;
    for (const std::string& folder : folders) {
        DS_ASSIGN(const std::shared_ptr<const DecodeRecording> one, DecodeRecording::open(folder));
        const RecordingInfo& info = one->info();
        const Shard shard{info.shard_index, info.shard_count};
        if (shard.whole())
            return bad_input("{}: is not of a shard; only recordings of record --shard are pooled", folder);
        if (!info.complete)
            return bad_input("{} in {} is incomplete: it was cancelled; record it again", shard_text(shard),
                             folder);
        if (!shards.empty()) DS_TRY(check_common(*shards.front(), *one));
        shards.push_back({{shard, folder}, one});
    }
    DS_TRY(sort_shards(shards, "recording"));
    return shards;
}

/// Copies the rows of a turn.
Status copy_turn(const DecodeRecording& from, const RecordedPrompt& prompt, std::int64_t place,
                 RecordingWriter& to) {
    const int n = prompt.rows();
    RecordedRows rows;
    rows.tokens = from.tokens(prompt);
    const auto copy_features = [&](int width, bool aux, std::vector<std::uint16_t>& out) -> Status {
        std::vector<float> values(static_cast<std::size_t>(n) * width);
        const Rows<float> view(values.data(), n, width);
        DS_TRY(aux ? from.aux(prompt.first_row, view) : from.hidden(prompt.first_row, view));
        for (const float value : values) out.push_back(kernels::to_bf16(value));  // it was bf16: exact
        return {};
    };
    DS_TRY(copy_features(from.info().target.hidden, false, rows.hidden));
    if (from.info().aux_width() > 0) DS_TRY(copy_features(from.info().aux_width(), true, rows.aux));
    for (int r = 0; r < n; ++r) {
        const std::vector<TokenId> ids = from.best(prompt.first_row + r, recording_topk);
        rows.topk_ids.insert(rows.topk_ids.end(), ids.begin(), ids.end());
        for (const float one : from.best_logprobs(prompt.first_row + r, recording_topk))
            rows.topk_logprobs.push_back(kernels::float_to_f16(one));
    }
    return to.append(prompt, place, rows);
}

/// Copies the conversations of all shards in turns, which is the order of the prompt file.
Result<std::size_t> copy_conversations(const std::vector<RecordingShard>& shards, RecordingWriter& to) {
    struct Cursor {
        std::vector<std::size_t> conversations;  ///< of each prompt
        std::size_t prompt = 0;
    };
    std::vector<Cursor> cursors;
    for (const RecordingShard& shard : shards)
        cursors.push_back({conversation_of_prompts(shard->info().prompts)});
    std::int64_t place = 0;
    std::size_t copied = 0;
    const bool uneven = std::ranges::any_of(shards, [](const auto& one) { return one->info().skipped > 0; });
    const auto ended = [](const Cursor& at) { return at.prompt == at.conversations.size(); };
    for (std::size_t s = 0; uneven ? !std::ranges::all_of(cursors, ended) : !ended(cursors[s]);
         s = (s + 1) % shards.size()) {
        Cursor& at = cursors[s];
        if (ended(at)) continue;
        const std::size_t conversation = at.conversations[at.prompt];
        for (; at.prompt < at.conversations.size() && at.conversations[at.prompt] == conversation;
             ++at.prompt)
            DS_TRY(copy_turn(*shards[s], shards[s]->prompts()[at.prompt], place++, to));
        ++copied;
    }
    for (std::size_t s = 0; s < shards.size(); ++s)
        if (!ended(cursors[s]))
            return bad_input(
                "{} has more conversations than its shard of the whole; the recordings are of "
                "different prompts",
                shards[s]->folder());
    return copied;
}

}  // namespace

Result<std::size_t> pool_recordings(const std::string& out, const std::vector<std::string>& folders) {
    namespace fs = std::filesystem;
    DS_ASSIGN(const std::vector<RecordingShard> shards, open_shards(folders));
    const DecodeRecording& first = *shards.front();
    RecordingInfo info = first.info();
    info.prompts.clear();
    info.rows = 0;
    for (std::size_t s = 1; s < shards.size(); ++s) info.skipped += shards[s]->info().skipped;
    info.shard_index = info.shard_count = 1;
    DS_ASSIGN(const auto writer, RecordingWriter::create(out, info, false));
    DS_ASSIGN(const std::size_t conversations, copy_conversations(shards, *writer));
    DS_TRY(writer->finish());
    if (first.weights_path().empty()) return conversations;
    std::error_code error;
    fs::copy_file(first.weights_path(), fs::path(out) / fs::path(first.weights_path()).filename(), error);
    if (error) return failed("{}: copying {}: {}", out, first.weights_path(), error.message());
    return conversations;
}

}  // namespace draftscope
