#include "engine/model/dequant.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace draftscope {
namespace {

using Json = nlohmann::json;

Json golden() {
    return Json::parse(std::ifstream(std::string(DS_SOURCE_DIR) + "/tests/golden/model/dequant.json"));
}

std::vector<std::uint8_t> from_hex(const std::string& hex) {
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        out.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return out;
}

TEST(Dequant, EveryTypeEqualsTheGgufPackageToTheBit) {
    const Json types = golden()["types"];
    std::set<std::string> seen;
    for (const auto& [name, sample] : types.items()) {
        const TensorType* type = gguf_tensor_type(sample["id"].get<std::uint32_t>());
        ASSERT_NE(type, nullptr) << name;
        EXPECT_EQ(type->name, name);
        seen.insert(name);
        // One byte off any alignment, as rows inside a file may be.
        std::vector<std::uint8_t> blocks = from_hex(sample["blocks"]);
        blocks.insert(blocks.begin(), 0);
        const std::vector<std::uint8_t> expected = from_hex(sample["floats"]);
        const std::size_t count = (blocks.size() - 1) / type->block_bytes;
        std::vector<float> values(count * type->block_elements);
        ASSERT_EQ(values.size() * sizeof(float), expected.size()) << name;
        type->dequantise(blocks.data() + 1, static_cast<std::int64_t>(count), values.data());
        EXPECT_EQ(std::memcmp(values.data(), expected.data(), expected.size()), 0) << name;
    }
    for (const TensorType& type : readable_tensor_types())
        EXPECT_TRUE(seen.count(std::string(type.name))) << type.name << " has no golden data";
}

TEST(Dequant, EveryHalfPrecisionNumber) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
        if ((bits & 0x7fffu) > 0x7c00u) {
            EXPECT_NE(value, value) << bits;
            continue;
        }
        const auto raw = std::bit_cast<std::uint32_t>(value);
        for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (raw >> (8 * byte) & 0xffu)) * 0x100000001b3u;
    }
    EXPECT_EQ(fmt::format("{:016x}", hash), golden()["all_halves"].get<std::string>());
}

TEST(Dequant, UnreadableTypesAreKnownByName) {
    ASSERT_NE(gguf_tensor_type(20), nullptr);
    EXPECT_EQ(gguf_tensor_type(20)->name, "IQ4_NL");
    EXPECT_EQ(gguf_tensor_type(20)->dequantise, nullptr);
    EXPECT_EQ(gguf_tensor_type(4), nullptr);
}

}  // namespace
}  // namespace draftscope
