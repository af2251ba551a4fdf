#include "engine/weights/weight_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/rng.h"
#include "engine/transformer/target.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tiny_model.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;
using kernels::Precision;

class WeightCache : public ::testing::Test {
  protected:
    void SetUp() override {
        fs::copy(std::string(DS_SOURCE_DIR) + "/tests/golden/models/llama", model(),
                 fs::copy_options::recursive);
        options_.mode = WeightCacheOptions::Mode::always;
        options_.min_bytes = 0;
    }
    std::string model() const { return scratch_.file("model"); }
    std::string cache(const char* precision = "bf16") const {
        return model() + "/draftscope-" + precision + ".packed";
    }
    std::unique_ptr<Target> load(Precision precision = Precision::bf16) {
        auto loaded = Target::load(model(), *exec_, precision, {}, options_);
        EXPECT_TRUE(is_ok(loaded));
        return loaded.ok() ? std::move(loaded).value() : nullptr;
    }
    std::vector<float> logits(Target& target) {
        const std::vector<TokenId> tokens = {5, 17, 23, 44};
        KvCache kv = target.make_cache(8);
        const SequenceTokens rows{&kv, tokens, {}, nullptr};
        ForwardOutput out;
        EXPECT_TRUE(target.forward({{&rows, 1}, {}, {}, true}, out).ok());
        return out.logits;
    }
    std::string read_bytes(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void write(const std::string& path, const std::string& bytes) {
        std::ofstream(path, std::ios::binary) << bytes;
    }

    testing::ScratchFolder scratch_;
    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(2);
    WeightCacheOptions options_;
};

TEST_F(WeightCache, SecondLoadReadsThePackedWeightsAndComputesTheSameBits) {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::int8, Precision::int4}) {
        const auto first = load(precision);
        const std::string path = cache(std::string(kernels::to_text(precision)).c_str());
        EXPECT_EQ(first->load_report().cache, path);
        EXPECT_EQ(first->load_report().from_cache, 0u);
        EXPECT_TRUE(fs::exists(path));
        EXPECT_FALSE(fs::exists(path + ".partial"));
        const auto second = load(precision);
        EXPECT_EQ(second->load_report().from_cache, second->load_report().bytes);
        EXPECT_GT(second->load_report().from_cache, 0u);
        EXPECT_TRUE(second->load_report().messages.empty());
        EXPECT_EQ(logits(*first), logits(*second)) << kernels::to_text(precision);
    }
}

TEST_F(WeightCache, IsWrittenOnlyIfEnabledAndSmaller) {
    options_.mode = WeightCacheOptions::Mode::off;
    load();
    EXPECT_FALSE(fs::exists(cache()));
    options_.mode = WeightCacheOptions::Mode::if_smaller;  // a bf16 folder: packing saves nothing
    load();
    EXPECT_FALSE(fs::exists(cache()));
    load(Precision::int8);
    EXPECT_TRUE(fs::exists(cache("int8")));
    options_.mode = WeightCacheOptions::Mode::always;
    options_.min_bytes = std::uint64_t{64} << 20;
    load();
    EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(WeightCache, RereadsChangedFiles) {
    load();
    const fs::path weights = model() + "/model-00001-of-00002.safetensors";
    std::string bytes = read_bytes(weights);
    bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 0x40);
    write(weights, bytes);
    const auto changed = load();
    EXPECT_EQ(changed->load_report().from_cache, 0u);
    ASSERT_EQ(changed->load_report().messages.size(), 1u);
    EXPECT_NE(changed->load_report().messages[0].find("have changed"), std::string::npos);
    const auto again = load();
    EXPECT_GT(again->load_report().from_cache, 0u);
    EXPECT_EQ(logits(*changed), logits(*again));
}

TEST_F(WeightCache, ReplacesDamagedFiles) {
    options_.mode = WeightCacheOptions::Mode::always;
    const auto expected = logits(*load());
    const std::string whole = read_bytes(cache());
    Rng rng(7);
    const std::size_t data = std::size_t{2} << 20;
    for (int i = 0; i < 40; ++i) {
        std::string damaged = whole;
        const std::size_t in_header = rng.below(3000), in_data = data + rng.below(whole.size() - data);
        switch (i % 4) {
            case 0:
                damaged.resize(in_header);
                break;
            case 1:
                damaged.resize(in_data);
                break;
            case 2:
                damaged[in_header] = static_cast<char>(damaged[in_header] ^ 1 << rng.below(8));
                break;
            default:
                damaged[in_data] = static_cast<char>(damaged[in_data] ^ 1 << rng.below(8));
        }
        write(cache(), damaged);
        const auto target = load();
        ASSERT_NE(target, nullptr) << i;
        EXPECT_EQ(logits(*target), expected) << i;
    }
    write(cache(), whole.substr(0, whole.size() - 5000));
    const auto cut = load();
    ASSERT_FALSE(cut->load_report().messages.empty());
    EXPECT_NE(cut->load_report().messages[0].find(cache()), std::string::npos);
    load();
    EXPECT_EQ(load()->load_report().messages.size(), 0u);
}

TEST_F(WeightCache, UsesTheUserFolderIfTheModelFolderIsReadOnly) {
    options_.next_to_model = false;
    options_.folder = scratch_.file("user/packed");
    const auto first = load(Precision::int8);
    EXPECT_TRUE(first->load_report().cache.starts_with(options_.folder)) << first->load_report().cache;
    EXPECT_GT(load(Precision::int8)->load_report().from_cache, 0u);
    EXPECT_FALSE(fs::exists(cache("int8")));
}

TEST_F(WeightCache, OneProcessWritesAPathAtATime) {
    const std::string path = scratch_.file("one.packed");
    std::string why_not;
    auto first = WeightCacheWriter::create(path, "source", Precision::bf16, 1000, why_not);
    ASSERT_NE(first, nullptr) << why_not;
    EXPECT_EQ(WeightCacheWriter::create(path, "source", Precision::bf16, 1000, why_not), nullptr);
    EXPECT_NE(why_not.find("another process"), std::string::npos);
    ASSERT_TRUE(first->finish().ok());
    first.reset();
    EXPECT_NE(WeightCacheReader::open(path, "source", Precision::bf16, why_not), nullptr) << why_not;
    EXPECT_EQ(WeightCacheReader::open(path, "source", Precision::int8, why_not), nullptr);
    // An unfinished writer keeps the existing file and leaves nothing behind.
    WeightCacheWriter::create(path, "other", Precision::bf16, 1000, why_not).reset();
    EXPECT_NE(WeightCacheReader::open(path, "source", Precision::bf16, why_not), nullptr) << why_not;
    EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST_F(WeightCache, IsNotWrittenWithoutFreeSpace) {
    std::string why_not;
    EXPECT_EQ(WeightCacheWriter::create(scratch_.file("big.packed"), "source", Precision::bf16,
                                        std::uint64_t{1} << 58, why_not),
              nullptr);
    EXPECT_NE(why_not.find("are free"), std::string::npos) << why_not;
}

}  // namespace
}  // namespace draftscope
