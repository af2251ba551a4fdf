#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "engine/verify/verify.h"

namespace draftscope {
namespace {

std::string_view rule_name(VerifyRule rule) {
    switch (rule) {
        case VerifyRule::match:
            return "match";
        case VerifyRule::pq:
            return "pq";
        case VerifyRule::typical:
            return "typical";
    }
    return "";
}

Status set_threshold(std::string_view piece, VerifySpec& spec) {
    const std::size_t equals = piece.find('=');
    const std::string_view name = piece.substr(0, equals);
    if (name != "epsilon" && name != "delta")
        return bad_input("--verify typical: unknown parameter '{}'; known are epsilon and delta", name);
    const std::string text(equals == std::string_view::npos ? std::string_view() : piece.substr(equals + 1));
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= 1))
        return bad_input("--verify typical: {}={} is not a number above 0 and at most 1", name, text);
    (name == "epsilon" ? spec.epsilon : spec.delta) = value;
    return {};
}

}  // namespace

Result<VerifySpec> parse_verify_spec(std::string_view text) {
    VerifySpec spec;
    const std::size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    for (const VerifyRule rule : {VerifyRule::match, VerifyRule::pq, VerifyRule::typical}) {
        if (name != rule_name(rule)) continue;
        spec.rule = rule;
        if (colon == std::string_view::npos) return spec;
        if (rule != VerifyRule::typical)
            return bad_input("--verify {}: takes no parameters, found '{}'", name, text.substr(colon + 1));
        for (std::string_view rest = text.substr(colon + 1);;) {
            const std::size_t comma = rest.find(',');
            DS_TRY(set_threshold(rest.substr(0, comma), spec));
            if (comma == std::string_view::npos) return spec;
            rest = rest.substr(comma + 1);
        }
    }
    return bad_input("--verify {}: unknown rule; known are match, pq and typical[:epsilon=0.09,delta=0.3]",
                     text);
}

std::string to_text(const VerifySpec& spec) {
    std::string text(rule_name(spec.rule));
    if (spec.rule != VerifyRule::typical) return text;
    return fmt::format("{}:epsilon={},delta={}", text, spec.epsilon, spec.delta);
}

}  // namespace draftscope
