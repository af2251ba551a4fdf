#include "engine/recording/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/numel.h"
#include "base/rng.h"
#include "engine/formats/dequant.h"
#include "engine/recording/recording_writer.h"
#include "kernels/ops/float16.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;

RecordingInfo small_info(bool aux) {
    RecordingInfo info;
    info.source = "test";
    info.target = {"tiny", 4, 6, 50, 48, 64, "00000000000000ff", {2, 0}};
    info.sampling = {1.0, 0.9, 5, 0xffffffffffffffffull};
    info.max_new = 8;
    info.backend = "cpu";
    info.isa = "avx2";
    info.precision = "f32";
    if (aux) info.aux_layers = {1, 2, 3};
    return info;
}

RecordedPrompt small_prompt(const std::string& id, int prompt_tokens, int generated) {
    RecordedPrompt prompt;
    prompt.id = id;
    prompt.suite = "suite";
    prompt.category = "qa";
    prompt.turn = 1;
    prompt.prompt_tokens = prompt_tokens;
    prompt.generated_tokens = generated;
    prompt.finish = Finish::length;
    return prompt;
}

RecordedRows random_rows(Rng& rng, const RecordingInfo& info, int n) {
    RecordedRows rows;
    const auto fill = [&](auto& to, int columns, auto value) {
        to.resize(numel(n, columns));
        for (auto& cell : to) cell = value();
    };
    const auto feature = [&] { return kernels::to_bf16(static_cast<float>(rng.normal())); };
    const auto id = [&] { return static_cast<TokenId>(rng.below(50)); };
    fill(rows.tokens, 1, id);
    fill(rows.hidden, info.target.hidden, feature);
    fill(rows.aux, info.aux_width(), feature);
    fill(rows.topk_ids, recording_topk, id);
    fill(rows.topk_logprobs, recording_topk,
         [&] { return kernels::float_to_f16(static_cast<float>(-rng.uniform())); });
    return rows;
}

void expect_rows(const DecodeRecording& recording, const RecordedPrompt& prompt, const RecordedRows& rows) {
    const int n = prompt.rows(), d = recording.info().target.hidden, w = recording.info().aux_width();
    EXPECT_EQ(recording.tokens(prompt), rows.tokens);
    std::vector<float> values(numel(n, std::max(d, w)));
    const auto expect_features = [&](const std::vector<std::uint16_t>& stored) {
        for (std::size_t i = 0; i < stored.size(); ++i) EXPECT_EQ(values[i], kernels::from_bf16(stored[i]));
    };
    ASSERT_TRUE(recording.hidden(prompt.first_row, Rows<float>(values.data(), n, d)).ok());
    expect_features(rows.hidden);
    if (w > 0) {
        ASSERT_TRUE(recording.aux(prompt.first_row, Rows<float>(values.data(), n, w)).ok());
        expect_features(rows.aux);
    }
    for (int r = 0; r < n; ++r) {
        const auto first = rows.topk_ids.begin() + r * recording_topk;
        EXPECT_EQ(recording.best(prompt.first_row + r, 3), std::vector<TokenId>(first, first + 3));
        const auto logprobs = recording.best_logprobs(prompt.first_row + r, recording_topk);
        for (std::size_t i = 0; i < logprobs.size(); ++i)
            EXPECT_EQ(kernels::float_to_f16(logprobs[i]), rows.topk_logprobs[numel(r, recording_topk) + i]);
    }
}

/// Writes a recording of two prompts. The prompt that is second in the file comes first in the list.
std::vector<RecordedRows> write_recording(const std::string& folder, bool aux) {
    Rng rng(5);
    auto writer = require(RecordingWriter::create(folder, small_info(aux), false));
    std::vector<RecordedRows> rows;
    rows.push_back(random_rows(rng, writer->info(), 7));
    rows.push_back(random_rows(rng, writer->info(), 5));
    EXPECT_TRUE(writer->append(small_prompt("late", 4, 3), 1, rows[0]).ok());
    EXPECT_TRUE(writer->append(small_prompt("early", 1, 4), 0, rows[1]).ok());
    writer->info().verify_ns = {{1, 1000}, {12, 3000}};
    writer->info().overhead_ns = 7;
    EXPECT_TRUE(is_ok(writer->finish()));
    return rows;
}

TEST(DecodeRecording, ReadsBackWhatWasWritten) {
    for (const bool aux : {false, true}) {
        const ScratchFolder scratch;
        const auto rows = write_recording(scratch.file("t"), aux);
        const auto recording = require(DecodeRecording::open(scratch.file("t")));
        const RecordingInfo& info = recording->info();
        EXPECT_EQ(info.rows, 12);
        EXPECT_EQ(info.target.name, "tiny");
        EXPECT_EQ(info.target.eos, (std::vector<TokenId>{2, 0}));
        EXPECT_EQ(info.target.tokenizer_hash, "00000000000000ff");
        EXPECT_EQ(info.sampling.seed, 0xffffffffffffffffull);
        EXPECT_EQ(info.sampling.top_p, 0.9);
        EXPECT_EQ(info.aux_layers.size(), aux ? 3u : 0u);
        EXPECT_EQ(info.verify_ns, (std::map<int, TimeNs>{{1, 1000}, {12, 3000}}));
        EXPECT_EQ(info.overhead_ns, 7);
        ASSERT_EQ(recording->prompts().size(), 2u);
        const RecordedPrompt& first = recording->prompts()[0];
        EXPECT_EQ(first.id, "early");
        EXPECT_EQ(first.turn, 1);
        EXPECT_EQ(first.category, "qa");
        EXPECT_EQ(first.first_row, 7);
        EXPECT_EQ(first.finish, Finish::length);
        expect_rows(*recording, first, rows[1]);
        expect_rows(*recording, recording->prompts()[1], rows[0]);
        EXPECT_EQ(recording->weights_path(), "");
        for (const auto& entry : std::filesystem::directory_iterator(scratch.file("t")))
            EXPECT_NE(entry.path().extension(), ".part");
    }
}

TEST(DecodeRecording, AnUnfinishedRecordingLeavesNoFiles) {
    const ScratchFolder scratch;
    {
        Rng rng(1);
        auto writer = require(RecordingWriter::create(scratch.file("t"), small_info(false), false));
        ASSERT_TRUE(writer->append(small_prompt("a", 1, 1), 0, random_rows(rng, small_info(false), 2)).ok());
    }
    EXPECT_TRUE(std::filesystem::is_empty(scratch.file("t")));
}

TEST(DecodeRecording, AnExistingRecordingIsKept) {
    const ScratchFolder scratch;
    write_recording(scratch.file("t"), false);
    const auto again = RecordingWriter::create(scratch.file("t"), small_info(false), false);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(again.error().message, HasSubstr("--overwrite"));
    EXPECT_TRUE(DecodeRecording::open(scratch.file("t")).ok());
    EXPECT_TRUE(RecordingWriter::create(scratch.file("t"), small_info(false), true).ok());
}

TEST(DecodeRecording, RowsOfAnotherSizeAreRefused) {
    const ScratchFolder scratch;
    Rng rng(1);
    auto writer = require(RecordingWriter::create(scratch.file("t"), small_info(true), false));
    const RecordedRows rows = random_rows(rng, small_info(false), 2);  // no aux
    EXPECT_FALSE(writer->append(small_prompt("a", 1, 1), 0, rows).ok());
    EXPECT_FALSE(writer->finish().ok());
}

struct Damage {
    std::function<void(nlohmann::json&)> error_after;
    std::string message;
};

TEST(DecodeRecording, InvalidFieldsAreNamed) {
    const ScratchFolder scratch;
    const std::string folder = scratch.file("t"), path = folder + "/trace.json";
    write_recording(folder, true);
    std::ifstream in(path);
    const nlohmann::json good = nlohmann::json::parse(in);
    const std::vector<Damage> damages = {
        {[](auto& j) { j["format"] = "gguf"; }, "format is \"gguf\""},
        {[](auto& j) { j["version"] = 99; }, "version is 99"},
        {[](auto& j) { j.erase("target"); }, "target is missing"},
        {[](auto& j) { j["target"]["hidden"] = -6; }, "target.hidden is -6"},
        {[](auto& j) { j["target"]["hidden"] = 8; }, "tensor 'hidden' has shape [12, 6], expected [12, 8]"},
        {[](auto& j) { j["target"]["vocab"] = "many"; }, "target.vocab is \"many\""},
        {[](auto& j) { j["target"]["tokens"] = 51; }, "target.tokens is 51"},
        {[](auto& j) { j["target"]["eos"] = {99}; }, "target.eos"},
        {[](auto& j) { j["target"]["context"] = 4; }, "more than the context of 4"},
        {[](auto& j) { j["sampling"]["top_p"] = 2; }, "sampling.top_p is 2"},
        {[](auto& j) { j["sampling"]["seed"] = -1; }, "sampling.seed is -1"},
        {[](auto& j) {
             j["aux_layers"] = {1, 2, 5};
         },
         "aux_layers"},
        {[](auto& j) {
             j["aux_layers"] = {1, 2};
         },
         "tensor 'aux' has shape [12, 18], expected [12, 12]"},
        {[](auto& j) { j["rows"] = 13; }, "shape [12"},
        {[](auto& j) { j["rows"] = 0; }, "rows is 0"},
        {[](auto& j) { j["prompts"] = nlohmann::json::array(); }, "prompts is []"},
        {[](auto& j) { j["prompts"][1] = 3; }, "prompts[1] is not an object"},
        {[](auto& j) { j["prompts"][1]["first_row"] = 1; }, "begins at row 1, expected 0"},
        {[](auto& j) { j["prompts"][0]["prompt_tokens"] = 0; }, "prompts[0].prompt_tokens is 0"},
        {[](auto& j) { j["prompts"][0]["generated_tokens"] = 5; }, "rows is 12, but its prompts have 13"},
        {[](auto& j) { j["prompts"][0]["finish"] = "tired"; }, "prompts[0].finish is \"tired\""},
        {[](auto& j) {
             j["times"]["verify_ns"] = {{"x", 1}};
         },
         "times.verify_ns names x rows"},
        {[](auto& j) {
             j["times"]["verify_ns"] = {{"2", -1}};
         },
         "verify_ns.2 is -1"},
    };
    for (const Damage& damage : damages) {
        nlohmann::json json = good;
        damage.error_after(json);
        std::ofstream(path) << json;
        const auto recording = DecodeRecording::open(folder);
        ASSERT_FALSE(recording.ok()) << damage.message;
        EXPECT_EQ(recording.error().kind, ErrorKind::bad_input);
        EXPECT_THAT(recording.error().message, HasSubstr(damage.message));
        EXPECT_THAT(recording.error().message, HasSubstr(folder));
    }
}

TEST(DecodeRecording, DamagedTensorsAreNamed) {
    const ScratchFolder scratch;
    const std::string folder = scratch.file("t"), path = folder + "/trace.safetensors";
    write_recording(folder, false);
    const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path));
    const auto poke = [&](std::streamoff at, std::int32_t value) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(at);
        std::int32_t old = 0;
        file.read(reinterpret_cast<char*>(&old), 4);
        file.seekp(at);
        file.write(reinterpret_cast<const char*>(&value), 4);
        return old;
    };
    // The data is hidden, topk_ids, topk_logprobs, tokens.
    const std::streamoff data = 4096, hidden = 12 * 6 * 2;
    const auto expect_error = [&](const std::string& message) {
        const auto recording = DecodeRecording::open(folder);
        ASSERT_FALSE(recording.ok());
        EXPECT_THAT(recording.error().message, HasSubstr(message));
    };
    std::int32_t old = poke(size - 4, 50);
    expect_error("tokens[11] is 50, outside the vocabulary of 50");
    poke(size - 4, old);
    old = poke(data + hidden + 33 * 4, -1);
    expect_error("topk_ids[1] is -1");
    poke(data + hidden + 33 * 4, old);

    old = poke(data, 0x7fc07fc0);
    const auto recording = require(DecodeRecording::open(folder));
    std::vector<float> row(6);
    const Status read = recording->hidden(0, Rows<float>(row.data(), 1, 6));
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().message, HasSubstr("hidden[0] holds a value that is not finite"));
    poke(data, old);

    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size - 1));
    expect_error("truncated");
    std::filesystem::remove(path);
    expect_error("trace.safetensors");
    std::filesystem::remove(folder + "/trace.json");
    expect_error("trace.json: is missing");
}

}  // namespace
}  // namespace draftscope
