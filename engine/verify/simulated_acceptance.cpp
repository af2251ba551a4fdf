#include "engine/verify/simulated_acceptance.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_file.h"
#include "base/parse.h"
#include "engine/tree/sampled_drafts.h"

namespace draftscope {

extern const RuleInfo simulated_info;

namespace {

Result<SimulatedAcceptance> parse_rates(std::string_view list, const std::string& text) {
    auto rates = parse_numbers(list, '/', 0.0, 1.0);
    if (!rates)
        return bad_input("--simulate-acceptance {}: '{}' is no list of rates from 0 to 1", text, list);
    return SimulatedAcceptance{std::move(*rates)};
}

/// Computes rates from a histogram of rounds by accepted drafts: the share of rounds with at least i drafts
/// that accepted i + 1.
Result<SimulatedAcceptance> acceptance_rates(const nlohmann::json& histogram, const std::string& file) {
    std::vector<double> rounds;
    for (const nlohmann::json& count : histogram) {
        if (!count.is_number_unsigned())
            return bad_input("{}: heads.histogram contains {}, expected counts of rounds", file,
                             printable_json(count));
        rounds.push_back(count.get<double>());
    }
    SimulatedAcceptance out;
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

/// Returns "full, fr-spec:v=8192"; "-" stands for a drafter without heads.
std::string list_heads(const std::vector<const nlohmann::json*>& heads) {
    std::string names;
    for (const nlohmann::json* head : heads) {
        const std::string name = head->value("head", std::string());
        names += (names.empty() ? "" : ", ") + (name.empty() ? "-" : name);
    }
    return names;
}

/// Splits "FILE#HEAD". The head is absent without "#HEAD" or if a file has the complete name.
std::pair<std::string, std::optional<std::string>> split_head_suffix(const std::string& source) {
    const std::size_t hash = source.rfind('#');
    std::error_code error;
    if (hash == std::string::npos || std::filesystem::exists(source, error)) return {source, std::nullopt};
    return {source.substr(0, hash), source.substr(hash + 1)};
}

Result<SimulatedAcceptance> read_rates(const std::string& source, const std::string& spec) {
    const auto [file, named] = split_head_suffix(source);
    DS_ASSIGN(const JsonFile document, JsonFile::read(file, "--simulate-acceptance trace:FILE"));
    const nlohmann::json* list = document.find("heads");
    std::vector<const nlohmann::json*> heads;
    if (list != nullptr && list->is_array()) {
        for (const nlohmann::json& head : *list)
            if (head.is_object() && head.contains("histogram") && head["histogram"].is_array() &&
                (!head.contains("head") || head["head"].is_string()))
                heads.push_back(&head);
    }
    if (heads.empty())
        return bad_input(
            "{}: has no list 'heads' with histograms; pass the output of draftscope replay --json", file);
    for (const nlohmann::json* head : heads)
        if (head->value("head", std::string()) == named.value_or(spec))
            return acceptance_rates((*head)["histogram"], file);
    if (named)
        return bad_input("--simulate-acceptance trace:{}: no head '{}'; the file has {}", source, *named,
                         list_heads(heads));
    return bad_input(
        "--simulate-acceptance trace:{}: {} runs, but the file has "
        "{}; replay it too, or choose with trace:FILE#HEAD",
        source, spec.empty() ? "a drafter without heads" : "head " + spec, list_heads(heads));
}

class SimulatedRule final : public AcceptanceRule {
  public:
    SimulatedRule(SimulatedAcceptance simulated, RulePtr verify)
        : AcceptanceRule(simulated_info), rates_(std::move(simulated.rates)), verify_(std::move(verify)) {
        assert(!rates_.empty());
    }

    RuleNeeds needs() const override { return {.sampled_drafts = verify_->needs().sampled_drafts}; }
    int max_accepted(const Sampling& sampling, const TokenPosition& root, int levels) const override {
        for (int depth = 0; depth < levels; ++depth) {
            const double rate = rates_[std::min(static_cast<std::size_t>(depth), rates_.size() - 1)];
            if (accept_uniform(sampling.seed, root.sequence, root.position + depth, 0) >= rate) return depth;
        }
        return levels;
    }

    void enqueue(VerifyContext& context) const override { follow(context, nullptr, 0); }

  private:
    std::vector<double> rates_;
    RulePtr verify_;
};

}  // namespace

Result<std::optional<SimulatedAcceptance>> parse_acceptance(const std::string& text,
                                                            const std::string& spec) {
    using Parsed = std::optional<SimulatedAcceptance>;
    constexpr std::string_view rate = "rate:", trace = "trace:";
    if (text == "real") return Parsed();
    if (text.starts_with(rate)) {
        DS_ASSIGN(SimulatedAcceptance out, parse_rates(std::string_view(text).substr(rate.size()), text));
        return Parsed(std::move(out));
    }
    if (text.starts_with(trace)) {
        DS_ASSIGN(SimulatedAcceptance out, read_rates(text.substr(trace.size()), spec));
        return Parsed(std::move(out));
    }
    return bad_input("--simulate-acceptance {}: unknown; use real, rate:R, trace:FILE or trace:FILE#HEAD",
                     text);
}

RulePtr make_simulated_rule(SimulatedAcceptance simulated, RulePtr verify) {
    return std::make_shared<SimulatedRule>(std::move(simulated), std::move(verify));
}

constinit const RuleInfo simulated_info = {.id = "simulated",
                                           .summary =
                                               "drafts are accepted at given rates; see "
                                               "--simulate-acceptance",
                                           .losslessness = Losslessness::lossy};

}  // namespace draftscope
