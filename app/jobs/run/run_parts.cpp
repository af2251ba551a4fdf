#include "app/jobs/run/run_parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "capture/run_setting.h"
#include "stats/comparable.h"

namespace draftscope {
namespace {

using nlohmann::json;

json parse_config(const RunRow& run) {
    json config = json::parse(run.config_json, nullptr, false);
    return config.is_object() ? config : json::object();
}

json value_of(const json& config, std::string_view key) {
    const auto found = config.find(key);
    return found == config.end() ? json() : *found;
}

std::string to_shown(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

RunPart describe_part(const RunRow& run) {
    const json config = parse_config(run), bench = value_of(config, bench_key);
    RunPart part;
    part.role = is_baseline(run) ? "baseline" : "run";
    if (bench.is_object())
        part.role = bench_role(bench.value("method", ""), bench.value("repetition", 0),
                               bench.value("control", false));
    if (const json shard = value_of(config, shard_key); shard.is_object())
        part.shard = {shard.value("index", 1), shard.value("count", 1)};
    part.conversations = config.value("conversations", 0);
    part.skipped = config.value(skipped_key, 0);
    return part;
}

std::string bench_role(const std::string& method, int repetition, bool control) {
    return fmt::format("{}, repetition {}{}", method, repetition + 1, control ? ", noise floor" : "");
}

std::string part_difference(const RunRow& a, const RunRow& b) {
    const auto differences = run_differences(a, b);
    if (!differences.empty()) return difference_text({differences.front()});
    const auto differ = [](const std::string& what, const std::string& of_a, const std::string& of_b) {
        return fmt::format("{} ({} and {})", what, of_a, of_b);
    };
    if (a.seed != b.seed) return differ("seed", std::to_string(a.seed), std::to_string(b.seed));
    const json config_a = parse_config(a), config_b = parse_config(b);
    for (const auto& [key, name] : {std::pair("acceptance", "simulate-acceptance"),
                                    {"head_hash", "contents of the head's files"},
                                    {"shadow", "shadow"},
                                    {"calibration_rounds", "calibrate"},
                                    {"conversations", "number of conversations"},
                                    {"prompts_hash", "contents of the prompts"},
                                    {"tags", "tags"}})
        if (const json of_a = value_of(config_a, key), of_b = value_of(config_b, key); of_a != of_b)
            return differ(name, to_shown(of_a), to_shown(of_b));
    const int shards_a = describe_part(a).shard.count, shards_b = describe_part(b).shard.count;
    if (shards_a != shards_b)
        return differ("number of shards", std::to_string(shards_a), std::to_string(shards_b));
    return {};
}

}  // namespace draftscope
