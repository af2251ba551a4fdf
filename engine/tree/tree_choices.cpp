#include "engine/tree/tree_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/tree/draft_tree.h"

namespace draftscope {
namespace {

/// Paths of ranks, one digit per level, by depth and then by path; the order of the published lists has no
/// meaning. Sources: Medusa (github FasterDecoding/Medusa, medusa/model/medusa_choices.py), whose default is
/// mc_sim_7b_63; EAGLE-1 (github SafeAILab/EAGLE, model/choices.py), which uses the same name for its own
/// tree.
constexpr std::array<PublishedChoices, 6> table{{
    {"mc_sim_7b_63",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 20 21 22 30 31 40 50 60 "
     "70 80 90 000 001 002 003 004 005 006 007 008 009 010 011 012 020 021 030 040 050 060 070 100 101 "
     "200 0000 0001"},
    {"vicuna_7b_stage2",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 20 21 30 31 40 50 60 70 000 001 "
     "002 003 004 005 006 007 008 010 011 012 013 020 021 030 040 050 100 101 102 110 200 0000 0001 "
     "0002 0003 0010 0020 0100"},
    {"vicuna_13b_stage2",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 20 21 30 40 50 000 001 002 003 004 "
     "005 006 007 008 009 010 011 012 013 020 021 030 040 050 100 101 102 110 200 300 0000 0001 0002 "
     "0003 0010 0011 0020 0100 1000"},
    {"vicuna_33b_stage2",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 20 21 22 30 31 40 50 60 70 000 "
     "001 002 003 004 005 006 007 008 009 010 011 012 013 020 021 030 040 050 100 101 102 110 200 0000 "
     "0001 0002 0010 0100"},
    {"zephyr_stage2",
     "0 1 2 3 4 5 6 7 8 9 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 20 21 22 23 30 31 40 41 50 "
     "60 70 000 001 002 003 004 005 006 007 008 009 010 011 012 013 020 021 030 040 050 100 101 110 "
     "200 0000 0001 0010"},
    {"eagle_mc_sim_7b_63",
     "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"},
}};

}  // namespace

std::span<const PublishedChoices> published_choices() {
    return table;
}

namespace {

using Path = std::vector<int>;

constexpr std::string_view shape =
    "a list of paths such as [[0], [0, 0], [1]], each path the ranks from the root";

std::string path_text(const Path& path) {
    return fmt::format("[{}]", fmt::join(path, ", "));
}

Status check_path(std::string_view name, const Path& path) {
    if (path.empty()) return bad_input("tree: choices:{}: contains an empty path; the root is implied", name);
    if (path.size() > static_cast<std::size_t>(max_tree_levels))
        return bad_input("tree: choices:{}: path {} has depth {}; the maximum is {}", name, path_text(path),
                         path.size(), max_tree_levels);
    for (const int rank : path)
        if (rank < 0 || rank >= max_tree_topk)
            return bad_input("tree: choices:{}: rank {} of path {} is outside 0..{}", name, rank,
                             path_text(path), max_tree_topk - 1);
    return {};
}

Result<std::vector<Path>> read_paths(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    const auto json = nlohmann::json::parse(in, nullptr, false);
    if (!json.is_array()) return bad_input("tree: choices:{}: is not {}", file, shape);
    std::vector<Path> paths;
    for (const auto& item : json) {
        if (!item.is_array())
            return bad_input("tree: choices:{}: entry {} is not a path; expected {}", file, paths.size(),
                             shape);
        Path path;
        for (const auto& rank : item) {
            // A rank that exceeds int is reported like any other rank that is too high.
            if (!rank.is_number_integer())
                return bad_input("tree: choices:{}: entry {} has a rank that is not a whole number", file,
                                 paths.size());
            const auto value = rank.is_number_unsigned() ? rank.get<std::uint64_t>() : std::uint64_t{0};
            const bool negative = !rank.is_number_unsigned() && rank.get<std::int64_t>() < 0;
            path.push_back(negative ? -1 : static_cast<int>(std::min<std::uint64_t>(value, 1 << 20)));
        }
        paths.push_back(std::move(path));
    }
    return paths;
}

std::vector<Path> parse_paths(const PublishedChoices& published) {
    std::vector<Path> paths(1);
    for (const char c : published.paths) {
        if (c == ' ')
            paths.emplace_back();
        else
            paths.back().push_back(c - '0');
    }
    return paths;
}

}  // namespace

int TreeChoices::max_rank() const {
    int max_seen = 0;
    for (const Node& node : nodes) max_seen = std::max(max_seen, node.rank);
    return max_seen;
}

int TreeChoices::inner_nodes() const {
    return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [](const Node& n) { return n.inner; }));
}

Result<TreeChoices> make_tree_choices(std::string_view name, std::vector<Path> paths) {
    if (paths.empty()) return bad_input("tree: choices:{}: has no paths; expected {}", name, shape);
    if (paths.size() >= static_cast<std::size_t>(max_tree_nodes))
        return bad_input("tree: choices:{}: contains {} paths; the maximum is {}", name, paths.size(),
                         max_tree_nodes - 1);
    for (const Path& path : paths) DS_TRY(check_path(name, path));
    std::sort(paths.begin(), paths.end(), [](const Path& a, const Path& b) {
        return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    const auto duplicate = std::adjacent_find(paths.begin(), paths.end());
    if (duplicate != paths.end())
        return bad_input("tree: choices:{}: path {} occurs twice", name, path_text(*duplicate));
    TreeChoices choices;
    choices.name = name;
    for (const Path& path : paths) {
        TreeChoices::Node node{-1, path.back(), static_cast<int>(path.size()), false};
        if (path.size() > 1) {
            const Path above(path.begin(), path.end() - 1);
            const auto found = std::find(paths.begin(), paths.end(), above);
            if (found == paths.end())
                return bad_input("tree: choices:{}: path {} has no parent; add {}", name, path_text(path),
                                 path_text(above));
            node.parent = static_cast<int>(found - paths.begin());
            choices.nodes[node.parent].inner = true;
        }
        choices.nodes.push_back(node);
    }
    choices.total_levels = choices.levels();
    return choices;
}

Result<TreeChoices> find_tree_choices(std::string_view name_or_file) {
    std::string known;
    for (const PublishedChoices& published : published_choices()) {
        if (published.name == name_or_file) return make_tree_choices(name_or_file, parse_paths(published));
        known += (known.empty() ? "" : ", ") + std::string(published.name);
    }
    const std::string file(name_or_file);
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error))
        return bad_input("tree: choices:{}: is neither a published tree ({}) nor a file with {}", file, known,
                         shape);
    DS_ASSIGN(auto paths, read_paths(file));
    return make_tree_choices(file, std::move(paths));
}

TreeChoices truncate_choices(const TreeChoices& choices, int levels) {
    TreeChoices cut;
    cut.name = choices.name;
    cut.total_levels = choices.total_levels;
    for (TreeChoices::Node node : choices.nodes) {
        if (node.depth > levels) break;
        node.inner = node.inner && node.depth < levels;
        cut.nodes.push_back(node);
    }
    return cut;
}

}  // namespace draftscope
