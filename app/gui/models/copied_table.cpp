#include "app/gui/models/copied_table.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/parse.h"

namespace draftscope {

std::vector<std::size_t> sorted_places(const std::vector<SortKey>& keys, bool descending) {
    std::vector<std::size_t> places(keys.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    const auto is_empty = [](const SortKey& key) { return !key.number && key.text.empty(); };
    std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) {
        const SortKey &x = keys[descending ? b : a], &y = keys[descending ? a : b];
        if (is_empty(x) || is_empty(y)) return is_empty(keys[b]) && !is_empty(keys[a]);
        return std::tie(x.number, x.text) < std::tie(y.number, y.text);
    });
    return places;
}

std::string to_tab_separated(std::string_view logged) {
    std::string out;
    while (!logged.empty()) {
        std::string_view line = logged.substr(0, logged.find('\n'));
        logged.remove_prefix(std::min(line.size() + 1, logged.size()));
        std::size_t at = line.find('|');
        if (at == std::string_view::npos) continue;
        bool first = true;
        while (at != std::string_view::npos) {
            line.remove_prefix(at + 1);
            at = line.find('|');
            if (!first) out += '\t';
            out += trim(line.substr(0, at));
            first = false;
        }
        out += '\n';
    }
    return out;
}

std::string to_csv(std::string_view tab_separated) {
    std::string out;
    while (!tab_separated.empty()) {
        const std::size_t end = std::min(tab_separated.find_first_of("\t\n"), tab_separated.size());
        const std::string_view cell = tab_separated.substr(0, end);
        if (cell.find_first_of(",\"\r") == std::string_view::npos) {
            out += cell;
        } else {
            out += '"';
            for (const char c : cell) out += c == '"' ? std::string("\"\"") : std::string(1, c);
            out += '"';
        }
        if (end == tab_separated.size()) break;
        out += tab_separated[end] == '\t' ? "," : "\r\n";
        tab_separated.remove_prefix(end + 1);
    }
    return out;
}

}  // namespace draftscope
