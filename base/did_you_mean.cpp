#include "base/did_you_mean.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace draftscope {
namespace {

/// Optimal string alignment: insertions, deletions, substitutions and swaps of two neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substituted = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, substituted});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before_last[j - 2] + 1);
        }
        before_last.swap(last);
        last.swap(row);
    }
    return last[b.size()];
}

}  // namespace

std::string_view closest_name(std::string_view word, std::span<const std::string_view> known) {
    std::string_view closest;
    if (word.size() < 2) return closest;  // every single letter is one edit away
    std::size_t smallest = std::max<std::size_t>(1, word.size() / 3) + 1;
    for (const std::string_view name : known) {
        const std::size_t distance = edit_distance(word, name);
        if (distance >= smallest) continue;
        smallest = distance;
        closest = name;
    }
    return closest;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
    const std::string_view name = closest_name(word, known);
    return name.empty() ? std::string() : fmt::format("; did you mean {}?", name);
}

}  // namespace draftscope
