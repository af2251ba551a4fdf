#include "engine/verify/replayed.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "engine/model/json_file.h"
#include "engine/tree/sampled_drafts.h"

namespace draftscope {
namespace {

Result<ReplayedAcceptance> parse_rates(std::string_view list, const std::string& text) {
    ReplayedAcceptance out;
    while (true) {
        const std::size_t slash = std::min(list.find('/'), list.size());
        double rate = -1;
        const auto [end, error] = std::from_chars(list.data(), list.data() + slash, rate);
        if (error != std::errc() || end != list.data() + slash || !(rate >= 0 && rate <= 1))
            return bad_input("--acceptance {}: '{}' is no rate from 0 to 1", text, list.substr(0, slash));
        out.rates.push_back(rate);
        if (slash == list.size()) return out;
        list.remove_prefix(slash + 1);
    }
}

/// Rates from rounds by accepted drafts: of those that kept i, how many kept i + 1.
Result<ReplayedAcceptance> rates_of(const nlohmann::json& histogram, const std::string& file) {
    std::vector<double> rounds;
    for (const nlohmann::json& count : histogram) {
        if (!count.is_number_unsigned())
            return bad_input("{}: heads.histogram holds {}, expected counts of rounds", file,
                             printable_json(count));
        rounds.push_back(count.get<double>());
    }
    ReplayedAcceptance out;
    double reached = 0;
    for (const double count : rounds) reached += count;
    if (!(reached > 0)) return bad_input("{}: heads.histogram has no rounds", file);
    for (const double stopped : rounds) {
        if (!(reached > 0)) break;
        out.rates.push_back((reached - stopped) / reached);
        reached -= stopped;
    }
    return out;
}

Result<ReplayedAcceptance> read_rates(const std::string& place) {
    const std::size_t hash = place.rfind('#');
    const std::string file = place.substr(0, hash);
    const std::string wanted = hash == std::string::npos ? "" : place.substr(hash + 1);
    DS_ASSIGN(const JsonFile document, JsonFile::read(file, "--acceptance trace:FILE"));
    const nlohmann::json* heads = document.find("heads");
    if (heads == nullptr || !heads->is_array() || heads->empty())
        return bad_input("{}: has no list `heads`; give what draftscope replay --json printed", file);
    for (const nlohmann::json& head : *heads) {
        if (!head.is_object() || !head.contains("histogram") || !head["histogram"].is_array()) continue;
        if (!wanted.empty() && head.value("head", std::string()) != wanted) continue;
        return rates_of(head["histogram"], file);
    }
    return bad_input("{}: no head '{}' with a histogram in `heads`", file, wanted);
}

}  // namespace

Result<std::optional<ReplayedAcceptance>> parse_acceptance(const std::string& text) {
    using Parsed = std::optional<ReplayedAcceptance>;
    constexpr std::string_view rate = "rate:", trace = "trace:";
    if (text == "real") return Parsed();
    if (text.starts_with(rate)) {
        DS_ASSIGN(ReplayedAcceptance out, parse_rates(std::string_view(text).substr(rate.size()), text));
        return Parsed(std::move(out));
    }
    if (text.starts_with(trace)) {
        DS_ASSIGN(ReplayedAcceptance out, read_rates(text.substr(trace.size())));
        return Parsed(std::move(out));
    }
    return bad_input("--acceptance {}: unknown; use real, rate:R or trace:FILE", text);
}

void accept_replayed(const ReplayedAcceptance& replayed, const DraftTree& tree, std::uint64_t seed,
                     const TokenPlace& place, std::span<const TargetChoice> choices, Acceptance& out) {
    assert(choices.size() == tree.tokens.size() && !replayed.rates.empty());
    out.path.assign(1, 0);
    int at = 0;
    std::size_t depth = 0;
    for (int node = 1; node < static_cast<int>(tree.tokens.size()); ++node) {
        if (tree.parents[static_cast<std::size_t>(node)] != at) continue;
        const double rate = replayed.rates[std::min(depth, replayed.rates.size() - 1)];
        const auto position = place.position + static_cast<std::int64_t>(depth);
        if (accept_uniform(seed, place.sequence, position, 0) >= rate) break;
        at = node;
        ++depth;
        out.path.push_back(node);
    }
    out.bonus = choices[static_cast<std::size_t>(at)].token;
}

}  // namespace draftscope
