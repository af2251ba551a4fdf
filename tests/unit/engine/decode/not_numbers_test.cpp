#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/head_specs.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_decode.h"

/// NaN in the weights of a target or a drafter stops a run at once and is named.
namespace draftscope::testing {
namespace {

using ::testing::HasSubstr;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float inf = std::numeric_limits<float>::infinity();

/// Sets every value of a checkpoint's tensors whose names contain `part` to NaN, in every format of numbers.
void spoil(const std::string& folder, const std::string& part) {
    const std::string path = folder + "/model.safetensors";
    std::string bytes = read_text(path);
    std::uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    int found = 0;
    const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, size));
    for (const auto& [name, tensor] : header.items()) {
        if (name.find(part) == std::string::npos) continue;
        const std::size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
        std::fill_n(bytes.begin() + 8 + static_cast<std::ptrdiff_t>(size + begin), end - begin, '\xff');
        ++found;
    }
    ASSERT_GT(found, 0) << path << ": " << header.dump();
    write_text(path, bytes);
}

/// A random target with a drafter of each kind, whose weights of one name are NaN.
class SpoiltDrafters {
  public:
    SpoiltDrafters()
        : target_(DecodeFixture::build(make_tiny_model(21, few_token_options()), kernels::Precision::f32)),
          eagle2_(target_->config(), 77),
          eagle3_(target_->config(), 78),
          medusa_(target_->config(), false, 79, 5),
          hydra_(target_->config(), true, 80, 5),
          ranking_(RankingFile::shuffled(few_tokens)),
          fixture_(std::move(target_),
                   {{"eagle2", eagle2_.folder()},
                    {"eagle3", eagle3_.folder()},
                    {"medusa", medusa_.folder()},
                    {"hydra", hydra_.folder()}},
                   ranking_.path()) {
        spoil(eagle2_.folder(), "fc");
        spoil(eagle3_.folder(), "norm.weight");
        spoil(medusa_.folder(), "1.0");
        spoil(hydra_.folder(), "2.0");
    }

  private:
    std::unique_ptr<Target> target_;
    TinyEagle2 eagle2_;
    TinyEagle3 eagle3_;
    TinyDecodingHeads medusa_, hydra_;
    RankingFile ranking_;

  protected:
    DecodeFixture fixture_;
};

class NanDrafter : public ::testing::Test, protected SpoiltDrafters {
  protected:
    void expect_named(const DecodeCase& setting, const std::string& level) {
        const Error error = fixture_.decode_error(setting, {1, 2, 3});
        EXPECT_EQ(error.kind, ErrorKind::failed) << to_text(setting);
        EXPECT_THAT(error.message, HasSubstr(setting.drafter +
                                             ": the log-probabilities of its drafts are not "
                                             "numbers (sequence 0, position 3, level " +
                                             level))
            << to_text(setting);
    }
};

TEST_F(NanDrafter, IsNamedWithEveryTreeRuleAndTemperature) {
    const std::pair<const char*, const char*> drafters[] = {
        {"eagle2", "0"}, {"eagle3", "0"}, {"medusa", "1"}, {"hydra", "2"}};
    for (const auto& [drafter, level] : drafters)
        for (const char* tree : {"chain=4", "choices:mc_sim_7b_63"})
            for (const double temperature : {0.0, 0.8})
                for (const char* rule : {"match", "pq", "typical"})
                    expect_named(
                        {.drafter = drafter, .tree = tree, .temperature = temperature, .verify = rule},
                        level);
}

TEST_F(NanDrafter, IsNamedWithEveryHead) {
    const TinyArtefacts artefacts(fixture_);
    for (const std::string& head : specs_of_heads({"fr-spec:v=6", "full", "full+rdk", "fr-spec:v=6+rdk"}))
        for (const double temperature : {0.0, 0.8})
            expect_named({.drafter = "eagle2", .head = head, .temperature = temperature, .verify = "pq"},
                         "0");
}

TEST(NanTarget, StopsAtItsFirstRow) {
    TinyModelOptions options = few_token_options();
    options.logit_scale = nan;
    auto target = DecodeFixture::build(make_tiny_model(21, options), kernels::Precision::f32);
    const TinyEagle2 eagle2(target->config(), 77);
    DecodeFixture fixture(std::move(target), {{"eagle2", eagle2.folder()}}, "");
    for (const char* drafter : {"none", "ngram", "eagle2"})
        for (const double temperature : {0.0, 0.8})
            for (const char* rule : {"match", "pq", "typical"}) {
                const DecodeCase setting = {
                    .drafter = drafter, .temperature = temperature, .batch = 2, .verify = rule};
                const Error error = fixture.decode_error(setting, {1, 2, 3, 4, 5, 6});
                EXPECT_EQ(error.kind, ErrorKind::failed);
                EXPECT_THAT(error.message,
                            HasSubstr("the target's logits are not numbers (prompt 0, position 5)"))
                    << to_text(setting);
            }
}

TEST(Logits, AreNumbersIfOneIsFinite) {
    const auto exec = kernels::make_cpu_backend(1);
    const auto numbers = [&](std::vector<float> row, const Sampling& sampling) {
        const TokenPosition position{0, 1};
        std::vector<TargetSample> out;
        sample_tokens(*exec, {row.data(), 1, static_cast<int>(row.size())}, static_cast<int>(row.size()),
                      sampling, {&position, 1}, out);
        return out[0].is_number();
    };
    for (const Sampling& sampling :
         {Sampling{}, Sampling{.temperature = 0.7}, Sampling{.temperature = 0.7, .top_p = 0.9, .top_k = 2}}) {
        EXPECT_TRUE(numbers({-inf, 1.5f, -inf, -2.0f}, sampling)) << "masked tokens are legal";
        EXPECT_TRUE(numbers({-inf, -inf, -3e30f, -inf}, sampling));
        EXPECT_FALSE(numbers({nan, nan, nan, nan}, sampling));
        EXPECT_FALSE(numbers({-inf, -inf, -inf, -inf}, sampling));
        EXPECT_FALSE(numbers({-inf, nan, -inf, -inf}, sampling));
        EXPECT_FALSE(numbers({0.0f, inf, 1.0f, 2.0f}, sampling));
    }
    EXPECT_TRUE(has_nan(std::vector<float>{1, nan, 2}));
    EXPECT_FALSE(has_nan(std::vector<float>{1, -inf, inf}));
}

}  // namespace
}  // namespace draftscope::testing
