#include "app/jobs/sweep/sweep_about.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/jobs/sweep/pricing.h"

namespace draftscope {
namespace {

using nlohmann::json;

/// The predicted figures are for readers of the file; loading predicts them again.
json oracle_json(const OracleLine& line) {
    return {{"drafters", line.drafters}, {"head", line.head},
            {"batch", line.batch},       {"levels", line.levels},
            {"weights", line.weights},   {"rounds", line.rounds},
            {"tau", line.tau()},         {"tokens_per_second", line.tokens_per_second()},
            {"speedup", line.speedup()}, {"round_ms", line.round_ms},
            {"plain_ms", line.plain_ms}};
}

/// Returns whether the counts are of as many drafters, with at least one round.
bool is_valid(const OracleLine& line) {
    constexpr std::size_t max_tokens = 1000;
    double sum = 0;
    for (const std::vector<double>& counts : line.rounds)
        for (const double count : counts) {
            if (!(count >= 0)) return false;
            sum += count;
        }
    return !line.drafters.empty() && line.rounds.size() == line.drafters.size() && sum > 0 &&
           line.batch >= 1 &&
           std::ranges::all_of(line.rounds, [](const auto& counts) { return counts.size() < max_tokens; });
}

OracleLine to_oracle(const json& from) {
    OracleLine line;
    from.at("drafters").get_to(line.drafters);
    from.at("head").get_to(line.head);
    from.at("batch").get_to(line.batch);
    from.at("levels").get_to(line.levels);
    from.at("weights").get_to(line.weights);
    from.at("rounds").get_to(line.rounds);
    return line;
}

}  // namespace

json sweep_about_json(const SweepReport& report) {
    json weights = json::object(), oracles = json::array();
    for (const SweepSetting& one : report.settings) weights[pair_text(one.drafter, one.head)] = one.weights;
    for (const OracleLine& line : report.oracles) oracles.push_back(oracle_json(line));
    return {{"context", {{"positions", report.context.positions}, {"tokens", report.context.tokens}}},
            {"weights", std::move(weights)},
            {"oracles", std::move(oracles)}};
}

SweepAbout parse_sweep_about(const std::string& text) {
    SweepAbout about;
    const json from = json::parse(text, nullptr, false);
    // The library throws at a member that is missing or of another type.
    try {
        from.at("context").at("positions").get_to(about.context.positions);
        from.at("context").at("tokens").get_to(about.context.tokens);
        from.at("weights").get_to(about.weights);
        for (const json& one : from.at("oracles"))
            if (OracleLine line = to_oracle(one); is_valid(line)) about.oracles.push_back(std::move(line));
    } catch (const json::exception&) {
        return about;
    }
    return about;
}

}  // namespace draftscope
