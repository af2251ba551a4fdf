#include "engine/formats/dequant.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "kernels/ops/float16.h"
#include "kernels/packing.h"
#include "kernels/thread_pool.h"

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

TEST(Dequant, MatchesTheGgufPackageBitForBit) {
    const Json types = golden()["types"];
    std::set<std::string> seen;
    for (const auto& [name, sample] : types.items()) {
        const TensorType* type = find_gguf_tensor_type(sample["id"].get<std::uint32_t>());
        ASSERT_NE(type, nullptr) << name;
        EXPECT_EQ(type->name, name);
        seen.insert(name);
        // Offset by one byte: rows inside a file may be unaligned.
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

TEST(Dequant, PacksFourBitRowsWithoutRequantisation) {
    const auto exec = kernels::make_cpu_backend(1);
    const Json types = golden()["types"];
    for (const char* name : {"Q4_0", "Q4_1", "Q8_0"}) {
        const Json& sample = types[name];
        const TensorType& type = *find_gguf_tensor_type(sample["id"].get<std::uint32_t>());
        const std::vector<std::uint8_t> blocks = from_hex(sample["blocks"]),
                                        expected = from_hex(sample["floats"]);
        const int k = static_cast<int>(expected.size() / sizeof(float));
        bool taken = false;
        const auto matrix = kernels::pack_int4(
            exec->pool(), 1, k, [&](int, float* out) { std::memcpy(out, expected.data(), expected.size()); },
            [&](int, const kernels::Int4Row& out) { return taken = unpack_int4(type, blocks.data(), out); });
        EXPECT_EQ(taken, std::string_view(name) != "Q8_0");
        std::vector<float> row(static_cast<std::size_t>(k)), values(row);
        matrix.unpack_row(0, row);
        std::memcpy(values.data(), expected.data(), expected.size());
        if (taken) {
            EXPECT_EQ(row, values) << name;
        }
    }
}

/// The steps of Q4_K are kept; its scales and minimums, products of two numbers, are rounded to f16.
TEST(Dequant, PacksQ4KRowsInTheirOwnSteps) {
    const Json sample = golden()["types"]["Q4_K"];
    const TensorType& type = *find_gguf_tensor_type(sample["id"].get<std::uint32_t>());
    const std::vector<std::uint8_t> blocks = from_hex(sample["blocks"]), floats = from_hex(sample["floats"]);
    std::vector<float> expected(floats.size() / sizeof(float));
    std::memcpy(expected.data(), floats.data(), floats.size());
    std::vector<std::uint8_t> q(expected.size());
    std::vector<std::uint16_t> scales(q.size() / 32), minimums(scales.size());
    ASSERT_TRUE(unpack_int4(type, blocks.data(), {q, scales, minimums}));
    constexpr float rounding = 1.0f / 2048;
    for (std::size_t i = 0; i < q.size(); ++i) {
        const float scale = kernels::f16_to_float(scales[i / 32]),
                    minimum = kernels::f16_to_float(minimums[i / 32]);
        const float value = scale * static_cast<float>(q[i]) + minimum;
        EXPECT_NEAR(value, expected[i], rounding * (15 * std::fabs(scale) + std::fabs(minimum)) + 1e-6f) << i;
    }
}

/// For every f16 scale of a Q4_0 block, the minimum is exactly -8 times the scale, or the block is rejected.
TEST(Dequant, ComputesTheExactMinimumForEveryScale) {
    const TensorType& type = *find_gguf_tensor_type(2);
    ASSERT_EQ(type.name, "Q4_0");
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        std::vector<std::uint8_t> block(type.block_bytes, 0), q(32);
        block[0] = static_cast<std::uint8_t>(bits);
        block[1] = static_cast<std::uint8_t>(bits >> 8);
        std::vector<std::uint16_t> scales(1), minimums(1);
        const bool taken = unpack_int4(type, block.data(), {q, scales, minimums});
        const float expected = -8.0f * kernels::f16_to_float(static_cast<std::uint16_t>(bits));
        ASSERT_EQ(taken, std::fabs(expected) <= 65504.0f) << bits;
        if (taken) {
            ASSERT_EQ(kernels::f16_to_float(minimums[0]), expected) << bits;
        }
    }
}

TEST(Dequant, ConvertsEveryHalfPrecisionNumber) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float value = kernels::f16_to_float(static_cast<std::uint16_t>(bits));
        if ((bits & 0x7fffu) > 0x7c00u) {
            EXPECT_NE(value, value) << bits;
            continue;
        }
        const auto raw = std::bit_cast<std::uint32_t>(value);
        for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (raw >> (8 * byte) & 0xffu)) * 0x100000001b3u;
    }
    EXPECT_EQ(fmt::format("{:016x}", hash), golden()["all_halves"].get<std::string>());
}

TEST(Dequant, NamesTypesWithoutADecoder) {
    ASSERT_NE(find_gguf_tensor_type(20), nullptr);
    EXPECT_EQ(find_gguf_tensor_type(20)->name, "IQ4_NL");
    EXPECT_EQ(find_gguf_tensor_type(20)->dequantise, nullptr);
    EXPECT_EQ(find_gguf_tensor_type(4), nullptr);
}

}  // namespace
}  // namespace draftscope
