#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/formats/safetensors_writer.h"
#include "engine/formats/weight_source.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

/// Compares the rounds of a draft model with transformers' assisted generation
/// (tools/make_draft_model_golden.py).
namespace draftscope {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::DecodeFixture;
using testing::RecordList;
using testing::ScratchFolder;

Json read_json(const std::string& path) {
    return Json::parse(std::ifstream(path));
}

/// Writes the tensors of the tests' llama to one file, without the layers from `layers` on.
void write_weights(const std::string& from, const std::string& file, int layers) {
    std::deque<std::vector<float>> values;
    std::vector<TensorToSave> tensors;
    for (const char* shard : {"1", "2"}) {
        const auto source =
            require(open_safetensors(fmt::format("{}/model-0000{}-of-00002.safetensors", from, shard)));
        for (const std::string& name : source->names()) {
            if (name.find(fmt::format(".layers.{}.", layers)) != std::string::npos) continue;
            const TensorInfo& info = *source->find(name);
            auto& rows = values.emplace_back(info.rows() * info.cols());
            for (std::int64_t row = 0; row < info.rows(); ++row)
                source->read_row(info, row, rows.data() + row * info.cols());
            tensors.push_back({name, "F32", info.shape, std::as_bytes(std::span(rows))});
        }
    }
    ASSERT_TRUE(is_ok(save_safetensors(file, tensors, {})));
}

/// Copies the tests' llama of three layers with its first `layers`, and with `end` as the token that ends a
/// text.
std::string copy_model(const ScratchFolder& folder, const std::string& name, int layers, int end) {
    const std::string from = std::string(DS_SOURCE_DIR) + "/tests/golden/models/llama",
                      to = folder.file(name);
    fs::create_directory(to);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
        fs::copy(from + "/" + file, to + "/" + file);
    write_weights(from, to + "/model.safetensors", layers);
    Json config = read_json(from + "/config.json");
    config["num_hidden_layers"] = layers;
    config.erase("eos_token_id");
    testing::write_text(to + "/config.json", config.dump());
    testing::write_text(to + "/generation_config.json", Json{{"eos_token_id", end}}.dump());
    return to;
}

TEST(DraftModelRounds, EqualTransformersAssistedGeneration) {
    const Json golden = read_json(std::string(DS_SOURCE_DIR) + "/tests/golden/draft_model.json");
    int all = 0, none = 0, ends = 0;
    for (const Json& expected : golden["cases"]) {
        const ScratchFolder folder;
        const int end = expected["end"], k = expected["k"];
        const auto backend = kernels::make_cpu_backend(1);
        auto target =
            require(Target::load(copy_model(folder, "target", 3, end), *backend, kernels::Precision::f32));
        const std::string spec =
            "draft-model:" + copy_model(folder, "draft", golden["layers"], end) + ",precision=f32";
        DecodeFixture fixture(std::move(target), {}, "");
        fixture.run_on(*backend);
        RecordList list;
        const auto text = expected["text"].get<std::vector<TokenId>>();
        const auto outcomes = fixture.decode(
            {.drafter = spec, .tree = "chain=" + std::to_string(k), .max_new = static_cast<int>(text.size())},
            {expected["prompt"].get<std::vector<TokenId>>()}, &list);
        EXPECT_EQ(outcomes.at(0).tokens, text);
        const auto records = list.take();
        std::size_t at = 0;
        for (const StepRecord& step : RecordList::of<StepRecord>(records)) {
            ASSERT_LT(at, expected["rounds"].size());
            const Json& round = expected["rounds"][at++];
            std::vector<TokenId> drafted;
            for (const NodeRow& node : step.rounds.at(0).nodes)
                if (node.depth > 0) drafted.push_back(node.token_id);
            // A draft of transformers ends with the text, and before the limit of its tokens.
            const auto wanted = round[1].get<std::vector<TokenId>>();
            ASSERT_GE(drafted.size(), wanted.size());
            drafted.resize(wanted.size());
            EXPECT_EQ(drafted, wanted) << "round " << at;
            // An accepted end is the target's own choice there, after the drafts.
            const int accepted = std::min(step.rounds[0].round.accepted, static_cast<int>(wanted.size()));
            const bool ended = accepted > 0 && wanted.at(accepted - 1) == end;
            EXPECT_EQ(accepted - (ended ? 1 : 0), round[0].get<int>()) << "round " << at;
            all += accepted == k ? 1 : 0;
            none += accepted == 0 ? 1 : 0;
            ends += std::ranges::count(wanted, end);
        }
        EXPECT_EQ(at, expected["rounds"].size());
    }
    EXPECT_GT(all, 3);
    EXPECT_GT(none, 10);
    EXPECT_GT(ends, 1);
}

}  // namespace
}  // namespace draftscope
