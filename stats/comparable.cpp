#include "stats/comparable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "capture/run_setting.h"

namespace draftscope {

namespace {

/// Keys of the machine. If a run lacks them, its machine may be a different one.
constexpr std::array machine_keys = {"cpu", "cores", "isa", "gpu"};

std::string text_of(const std::vector<RunDifference>& differences,
                    const std::function<bool(const RunDifference&)>& wanted) {
    std::string out;
    for (const RunDifference& one : differences)
        if (wanted(one))
            out += fmt::format("{}{} ({} and {})", out.empty() ? "" : ", ", one.what,
                               one.a.empty() ? "unknown" : one.a, one.b.empty() ? "unknown" : one.b);
    return out;
}

}  // namespace

std::vector<RunDifference> run_differences(const RunRow& a, const RunRow& b) {
    struct Pair {
        const SettingField *a = nullptr, *b = nullptr;
    };
    const std::vector<SettingField> fields_a = setting_fields(a), fields_b = setting_fields(b);
    std::map<std::string_view, Pair> pairs;
    for (const SettingField& field : fields_a) pairs[field.key].a = &field;
    for (const SettingField& field : fields_b) pairs[field.key].b = &field;
    std::vector<RunDifference> out;
    for (const SettingKind kind : {SettingKind::source, SettingKind::work, SettingKind::subject})
        for (const auto& [key, pair] : pairs) {
            const SettingField& known = pair.a != nullptr ? *pair.a : *pair.b;
            if (known.kind != kind) continue;
            const bool both = pair.a != nullptr && pair.b != nullptr;
            if (both && pair.a->value == pair.b->value) continue;
            // Captures without texts, or of earlier versions, lack some fields.
            if (!both && std::ranges::find(machine_keys, key) == machine_keys.end()) continue;
            out.push_back({known.label, pair.a == nullptr ? "" : pair.a->text,
                           pair.b == nullptr ? "" : pair.b->text, kind != SettingKind::subject,
                           kind == SettingKind::source});
        }
    if (a.head != b.head) out.push_back({"head", a.head, b.head});
    if ((a.temperature > 0 || b.temperature > 0) && a.seed != b.seed)
        out.push_back({"seed", fmt::format("{}", a.seed), fmt::format("{}", b.seed)});
    return out;
}

std::string forbidding_text(const std::vector<RunDifference>& differences) {
    return text_of(differences, [](const RunDifference& one) { return one.forbids; });
}

std::string separating_text(const std::vector<RunDifference>& differences) {
    return text_of(differences, [](const RunDifference& one) { return one.separates; });
}

std::string difference_text(const std::vector<RunDifference>& differences) {
    return text_of(differences, [](const RunDifference&) { return true; });
}

std::string allowed_difference_text(const std::vector<RunDifference>& differences) {
    static const std::set<std::string_view> shown = {"drafter", "head", "tree", "seed"};
    return text_of(differences,
                   [](const RunDifference& one) { return !one.forbids && !shown.contains(one.what); });
}

bool comparable(const RunRow& a, const RunRow& b) {
    return head_setting(a) == head_setting(b);
}

}  // namespace draftscope
