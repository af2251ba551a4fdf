#include "profiler/comparable.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace draftscope {

namespace {

/// A field of a JSON object as text; "" when it is not there.
std::string field(const nlohmann::json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || found == object.end() || found->is_null()) return {};
    return found->is_string() ? found->get<std::string>() : found->dump();
}

}  // namespace

std::vector<RunDifference> run_differences(const RunRow& a, const RunRow& b) {
    std::vector<RunDifference> out;
    const auto differ = [&](const char* what, const std::string& x, const std::string& y, bool forbids) {
        if (x != y) out.push_back({what, x, y, forbids});
    };
    const auto number = [](auto value) { return fmt::format("{}", value); };
    differ("target", a.target, b.target, true);
    differ("tier", a.tier, b.tier, true);
    differ("weights", a.synthetic ? "synthetic" : "real", b.synthetic ? "synthetic" : "real", true);
    differ("acceptance", a.acceptance, b.acceptance, true);
    differ("back end", a.backend, b.backend, true);
    const auto machine_a = nlohmann::json::parse(a.machine_json, nullptr, false);
    const auto machine_b = nlohmann::json::parse(b.machine_json, nullptr, false);
    differ("CPU", field(machine_a, "cpu"), field(machine_b, "cpu"), true);
    differ("cores", field(machine_a, "cores"), field(machine_b, "cores"), true);
    differ("instruction set", field(machine_a, "isa"), field(machine_b, "isa"), true);
    differ("GPU", field(machine_a, "gpu"), field(machine_b, "gpu"), true);
    const auto config_a = nlohmann::json::parse(a.config_json, nullptr, false);
    const auto config_b = nlohmann::json::parse(b.config_json, nullptr, false);
    const std::string tokens_a = field(config_a, "tokenizer_fingerprint");
    const std::string tokens_b = field(config_b, "tokenizer_fingerprint");
    // A capture without texts has no settings either.
    if (!tokens_a.empty() && !tokens_b.empty()) differ("tokenizer", tokens_a, tokens_b, true);
    differ("drafter", a.drafter, b.drafter, false);
    differ("head", a.head, b.head, false);
    differ("tree", a.tree, b.tree, false);
    differ("verify", a.verify, b.verify, false);
    differ("temperature", number(a.temperature), number(b.temperature), false);
    if (a.temperature > 0 || b.temperature > 0) differ("seed", number(a.seed), number(b.seed), false);
    differ("batch", number(a.batch), number(b.batch), false);
    differ("threads", number(a.threads), number(b.threads), false);
    differ("precision", a.precision, b.precision, false);
    differ("numerics", a.numerics, b.numerics, false);
    return out;
}

std::string forbidding_text(const std::vector<RunDifference>& differences) {
    std::string out;
    for (const RunDifference& one : differences)
        if (one.forbids)
            out += fmt::format("{}{} ({} and {})", out.empty() ? "" : ", ", one.what,
                               one.a.empty() ? "unknown" : one.a, one.b.empty() ? "unknown" : one.b);
    return out;
}

}  // namespace draftscope
