#include "app/jobs/reproduce/paper_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/assets.h"
#include "base/did_you_mean.h"

namespace draftscope {
namespace {

using json = nlohmann::ordered_json;

const json no_members = json::object();

/// Returns a member that is an object; empty if there is none.
const json& object_of(const json& object, const std::string& key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_object() ? *found : no_members;
}

std::string text_of(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

template <typename T>
std::optional<T> number_of(const json& object, const std::string& key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return std::nullopt;
    return found->get<T>();
}

/// Returns whether a result's source names the table: "Table 1: tau, rho_tau; Table 2: tokens_per_second".
bool stems_from(const json& result, const std::string& table) {
    const std::string source = text_of(result, "source");
    return source.starts_with(table + ":") || source.find("; " + table + ":") != std::string::npos;
}

std::string row_name(const json& result) {
    const std::string config = text_of(result, "config");
    return text_of(result, "head") + (config.empty() ? "" : " " + config);
}

/// Returns the quantities of a list in the file, without deviations and percent signs.
std::vector<std::string> quantities(const json& layout, const char* key) {
    std::vector<std::string> out;
    for (const json& one : layout.value(key, json::array())) {
        std::string name = one.get<std::string>();
        if (name.ends_with("_sd")) continue;
        if (name.ends_with('%')) name.pop_back();
        out.push_back(std::move(name));
    }
    return out;
}

PaperBlock make_block(const json& setup, const json& rerun) {
    PaperBlock block;
    block.label = text_of(setup, "label");
    block.framework = text_of(setup, "framework");
    block.hardware = text_of(setup, "hardware");
    block.drafter_text = text_of(setup, "drafter");
    block.tree_text = text_of(setup, "tree");
    block.max_new_text = text_of(setup, "max_new");
    block.drafter = rerun.at("drafter").get<std::string>();
    block.tree = rerun.at("tree").get<std::string>();
    block.verify = rerun.value("verify", RunConfig().verify);
    block.verified = text_of(rerun, "verified");
    block.temperature = number_of<double>(setup, "temperature");
    block.batch = number_of<int>(setup, "batch");
    block.runs = number_of<int>(setup, "runs");
    block.max_new = rerun.at("max_new").get<int>();
    block.with_prefill = rerun.at("with_prefill").get<bool>();
    block.assumed = text_of(rerun, "assumed");
    return block;
}

PaperRow make_row(const json& result, const std::string& recipe, const json& layout,
                  const std::vector<std::string>& columns) {
    const bool needs = recipe.starts_with("needs ");
    const std::string kind = text_of(result, "kind");
    PaperRow row{
        row_name(result), needs ? "" : recipe, needs ? recipe : "", kind, result.value("tau_kind", kind), {}};
    const auto add = [&](const json& cells, const std::string& column, const std::string& quantity) {
        row.values.push_back({column, quantity, number_of<double>(cells, quantity),
                              number_of<double>(cells, quantity + "_sd")});
    };
    for (const std::string& quantity : quantities(layout, layout.contains("cells") ? "cells" : "average"))
        for (const std::string& column : columns)
            add(object_of(object_of(result, "tasks"), column), column, quantity);
    for (const std::string& quantity : quantities(layout, "average")) add(result, "Average", quantity);
    return row;
}

/// Returns the rows that a table of `rerun` names itself, as results. A row's published value is the last
/// number of the row in the paper's table whose words are its name.
json rows_as_results(const json& about, const json& own) {
    json out = json::array();
    for (const json& pair : own.at("rows")) {
        json result = {{"head", pair.at(0)}, {"kind", "measured"}, {"recipe", pair.at(1)}};
        result.update({{"target", own.at("target")}, {"setup", own.at("setup")}});
        for (const json& row : about.value("rows", json::array())) {
            std::vector<std::string> words;
            for (const json& cell : row)
                if (cell.is_string()) words.push_back(cell.get<std::string>());
            if (row.back().is_number() && json(fmt::format("{}", fmt::join(words, ", "))) == pair.at(0))
                for (const std::string& quantity : quantities(own, "average")) result[quantity] = row.back();
        }
        out.push_back(std::move(result));
    }
    return out;
}

/// Makes the table `name`. `own` is what `rerun.tables` says of it: it selects results of other tables (`of`,
/// `only`), or has rows of its own.
PaperTable make_table(const std::string& stem, const json& data, const std::string& name, const json& about,
                      const json& own, const std::string& target) {
    const json& rerun = data.at("rerun");
    PaperTable table;
    table.name = fmt::format("{}/{}", stem, name);
    for (char& c : table.name)
        c = c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    table.paper = text_of(data, "short");
    table.citation = text_of(data, "citation");
    table.arxiv = text_of(data, "arxiv") + text_of(data, "version");
    table.table = name;
    table.title = text_of(about, "title");
    table.note = text_of(about, "note");
    table.prompts = rerun.at("prompts").get<std::vector<std::string>>();
    const std::vector<std::string> sources = own.value("of", std::vector{name});
    const auto only = own.value("only", std::vector<std::string>());
    const auto others = std::ranges::find_if(
        data.at("tables"), [&](const json& one) { return text_of(one, "table") == sources.front(); });
    const json layout = own.contains("rows") ? own : own.contains("of") ? *others : about;
    if (!layout.contains("average")) return table;
    table.columns = layout.at("columns").get<std::vector<std::string>>();
    std::vector<std::string> keys;  // of table.blocks
    const json rows = own.contains("rows") ? rows_as_results(about, own) : json();
    for (const json& result : rows.is_null() ? data.at("results") : rows) {
        const std::string key = text_of(result, "setup"), of = text_of(result, "target");
        const bool listed = result.contains("recipe") || std::ranges::any_of(sources, [&](const auto& one) {
                                return stems_from(result, one);
                            });
        const auto is_row = [&](const std::string& one) {
            return one == row_name(result) || one == text_of(result, "head");
        };
        if (!listed || !object_of(rerun, "setups").contains(key) ||
            (!only.empty() && std::ranges::none_of(only, is_row)))
            continue;
        if (std::ranges::find(table.targets, of) == table.targets.end()) table.targets.push_back(of);
        if (table.target.empty() && (target.empty() || target == of)) table.target = of;
        if (of != table.target) continue;
        auto place = std::ranges::find(keys, key);
        if (place == keys.end()) {
            place = keys.insert(place, key);
            table.blocks.push_back(make_block(data.at("setups").at(key), rerun["setups"][key]));
        }
        const json& recipes = object_of(rerun, "rows");
        const auto recipe = recipes.find(row_name(result));
        table.blocks[place - keys.begin()].rows.push_back(
            make_row(result,
                     result.value("recipe", recipe != recipes.end()
                                                ? recipe->get<std::string>()
                                                : text_of(recipes, text_of(result, "head").c_str())),
                     layout, table.columns));
    }
    if (table.blocks.empty()) return table;
    for (const auto& [task, text] : data.at("tasks").items()) {
        table.task_texts[task] = text.get<std::string>();
        if (table.columns.empty() || std::ranges::find(table.columns, task) != table.columns.end())
            table.tasks[task] = object_of(rerun, "tasks").value(task, task);
    }
    table.vocabulary = rerun.at("vocabulary").at(table.target).get<int>();
    return table;
}

/// Adds the tables of one file.
void add_tables(const std::string& stem, const json& data, const std::string& target,
                std::vector<PaperTable>& out) {
    if (!data.contains("rerun")) return;
    const json& own = object_of(data["rerun"], "tables");
    const auto add = [&](const std::string& name, const json& about) {
        PaperTable table = make_table(stem, data, name, about, object_of(own, name), target);
        if (!table.blocks.empty()) out.push_back(std::move(table));
    };
    for (const json& about : data.at("tables")) add(text_of(about, "table"), about);
    for (const auto& [name, about] : own.items())
        if (about.contains("title")) add(name, about);
}

}  // namespace

bool PaperTable::has(std::string_view quantity) const {
    for (const PaperBlock& block : blocks)
        for (const PaperRow& row : block.rows)
            if (std::ranges::find(row.values, quantity, &PaperValue::quantity) != row.values.end())
                return true;
    return false;
}

std::string PaperTable::task_of(std::string_view category) const {
    for (const auto& [task, own] : tasks)
        if (own == task_of_category(category)) return task;
    return {};
}

Result<std::vector<PaperTable>> read_paper_tables(const std::string& target) {
    const std::vector<std::string> paths = list_assets("published", ".json");
    if (paths.empty())
        return bad_input("assets/published: not found; set DRAFTSCOPE_ASSETS to the folder assets");
    std::vector<PaperTable> out;
    for (const std::string& path : paths) {
        try {
            std::ifstream file(path);
            add_tables(std::filesystem::path(path).stem().string(), json::parse(file), target, out);
        } catch (const json::exception& wrong) {
            return bad_input("{}: not as docs/FORMATS.md, \"Published results\", describes: {}", path,
                             wrong.what());
        }
    }
    return out;
}

Result<PaperTable> find_paper_table(const std::string& name, const std::string& target) {
    DS_ASSIGN(const std::vector<PaperTable> all, read_paper_tables());
    std::vector<std::string_view> known, of_paper;
    for (const PaperTable& table : all) {
        known.push_back(table.name);
        if (table.name.starts_with(name.substr(0, name.find('/')) + "/")) of_paper.push_back(known.back());
    }
    const auto found = std::ranges::find(all, name, &PaperTable::name);
    if (found == all.end())
        return bad_input("reproduce {}: unknown table; {}{}", name,
                         of_paper.empty() ? "draftscope reproduce --list names all"
                                          : fmt::format("known: {}", fmt::join(of_paper, ", ")),
                         did_you_mean(name, known));
    if (target.empty() || target == found->target) return *found;
    DS_ASSIGN(std::vector<PaperTable> of_target, read_paper_tables(target));
    for (PaperTable& table : of_target)
        if (table.name == name) return std::move(table);
    const std::vector<std::string_view> targets(found->targets.begin(), found->targets.end());
    return bad_input("--against {}: {} has no values for this target; known: {}{}", target, name,
                     fmt::join(targets, ", "), did_you_mean(target, targets));
}

std::string fill_sizes(const std::string& head, int paper_vocabulary, int vocabulary, int hidden) {
    std::string out;
    for (std::size_t at = 0; at < head.size();) {
        const std::size_t open = std::min(head.find('{', at), head.size());
        out += head.substr(at, open - at);
        if (open == head.size()) break;
        const std::size_t close = head.find('}', open);
        std::string_view size(head.data() + open + 1, close - open - 1);
        const bool of_hidden = size.starts_with("d/");
        if (of_hidden) size.remove_prefix(2);
        double value = 1;
        std::from_chars(size.data(), size.data() + size.size(), value);
        value = of_hidden ? std::floor(hidden / value) : std::round(value * vocabulary / paper_vocabulary);
        out += fmt::format("{:.0f}", value);
        at = close + 1;
    }
    return out;
}

}  // namespace draftscope
