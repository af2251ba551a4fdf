#include "stats/compare_text.h"

#include <fmt/ranges.h>

#include <cmath>

#include "base/format_count.h"
#include "base/tier_text.h"

namespace draftscope {

std::string_view to_text(Change change) {
    switch (change) {
        case Change::better:
            return "better";
        case Change::worse:
            return "worse";
        case Change::none_shown:
            return "no change shown";
        case Change::no_interval:
            break;
    }
    return "too few conversations";
}

std::string change_percent(double ratio) {
    return fmt::format("{:.1f} %", std::abs(ratio - 1) * 100);
}

std::string change_text(const ComparedQuantity& q) {
    const bool one_sided = q.phase_id != 0 && (q.a > 0) != (q.b > 0);
    return one_sided ? fmt::format("only in {}", q.a > 0 ? 'A' : 'B') : std::string(to_text(q.change));
}

std::array<std::string, 6> compare_cells(const ComparedQuantity& q) {
    const int digits = q.name == "tau" ? 3 : 1;
    const std::string range =
        q.ratio.interval ? fmt::format("{:.3f} .. {:.3f}", q.ratio.interval->low, q.ratio.interval->high)
                         : std::string("-");
    return {q.unit.empty() ? q.name : q.name + ", " + q.unit,
            fmt::format("{:.{}f}", q.a, digits),
            fmt::format("{:.{}f}", q.b, digits),
            q.a > 0 ? fmt::format("{:.3f}", q.ratio.value) : std::string("-"),
            range,
            change_text(q)};
}

std::string compare_side(char letter, const RunRow& run, const std::vector<RowId>& runs) {
    const std::string which = runs.size() > 1 ? fmt::format("runs {}, pooled", fmt::join(runs, ", "))
                                              : fmt::format("run {}", run.id);
    return fmt::format("{}  {}  drafter {}  head {}  tree {}  {}  {}  {}{}{}", letter, which, run.drafter,
                       run.head.empty() ? "-" : run.head, run.tree, run.precision,
                       format_count(run.threads, "thread"), tier_text(run.tier),
                       run.synthetic ? "  synthetic weights" : "",
                       run.acceptance != "real" ? "  ACCEPTANCE REPLAYED" : "");
}

std::string compare_footer(const Comparison& c) {
    return fmt::format(
        "{} of {}, paired; tau over all rounds, times over counted steps; ratios of sums; {}; phases by "
        "exposed time, their changes after Holm's correction",
        format_count(c.pairs, "turn"), format_count(c.conversations, "conversation"),
        interval_text(c.conversations));
}

}  // namespace draftscope
