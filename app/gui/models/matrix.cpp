#include "app/gui/models/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format_count.h"
#include "capture/conversations.h"
#include "capture/run_setting.h"
#include "stats/bench_table.h"
#include "stats/head_costs.h"

namespace draftscope {
namespace {

/// Columns of the mean over the shown tasks, and of a paper's printed mean over its own.
constexpr const char *mean_column = "mean of tasks", *printed_column = "paper's mean";

/// What a run contributes to the matrix.
struct MatrixRun {
    const RunRow* run = nullptr;
    std::string method;
    std::size_t repetition = 0;
    bool bench = false;
};

/// Returns the method of a run. Absent for a replayed setting, and for the decoding that measures the noise
/// floor.
std::optional<MatrixRun> describe_matrix_run(const RunRow& run) {
    MatrixRun out;
    out.run = &run;
    out.method = run.drafter == plain_drafter ? run.drafter : setting_name({run.drafter, run.head, run.tree});
    const auto config = nlohmann::json::parse(run.config_json, nullptr, false);
    // The sweep has the figures of a swept setting.
    if (config.is_object() && config.contains(replayed_recording_key)) return std::nullopt;
    if (run.acceptance == imported_acceptance) return std::nullopt;  // never averaged with runs of ours
    if (!config.is_object() || !config.contains(bench_key)) return out;
    const auto& bench = config[std::string(bench_key)];
    if (!bench.is_object()) return out;
    if (bench.value("control", false)) return std::nullopt;
    out.method = bench.value("method", out.method);
    const int repetition = bench.value("repetition", 0);
    out.repetition = static_cast<std::size_t>(std::max(repetition, 0));
    out.bench = true;
    return out;
}

/// Collects the samples of bench_table() from a capture.
class MatrixBuilder {
  public:
    explicit MatrixBuilder(const Snapshot& snapshot) : snapshot_(snapshot) {}

    MatrixModel build() {
        list_runs();
        list_prompts();
        if (runs_.empty() || samples_.prompts.empty()) {
            model_.empty_text =
                "Compares methods by task: open a capture with runs of several drafters, heads or trees over "
                "the same prompts, as a benchmark saves them.";
            return std::move(model_);
        }
        for (const MatrixRun& run : runs_) add(run);
        const BenchTable table = bench_table(samples_);
        model_.columns = {mean_column};
        model_.columns.insert(model_.columns.end(), table.tasks.begin(), table.tasks.end());
        for (std::size_t m = 0; m < methods_.size(); ++m) add_row(table, m);
        model_.note = fmt::format("measured, {} of the capture; {}", format_count(runs_.size(), "run"),
                                  interval_text(conversations_));
        if (!samples_.plain) model_.note += "; x AR needs a run with drafter none";
        return std::move(model_);
    }

  private:
    void list_runs() {
        for (const RunRow& row : snapshot_.runs)
            if (auto run = describe_matrix_run(row)) runs_.push_back(std::move(*run));
        const bool bench = std::ranges::any_of(runs_, &MatrixRun::bench);
        if (bench) std::erase_if(runs_, [](const MatrixRun& run) { return !run.bench; });
        for (MatrixRun& run : runs_) {
            // Ordinary runs of one method are told apart: their prompts may differ.
            if (!run.bench && methods_.contains(run.method))
                run.method += fmt::format(" (run {})", run.run->id);
            methods_.emplace(run.method, order_.size());
            if (methods_.size() > order_.size()) order_.push_back(&run);
        }
    }

    /// Prompts of all runs, by their place in the prompt file.
    void list_prompts() {
        std::map<int, const PromptRow*> by_ordinal;
        for (const MatrixRun& run : runs_)
            for (const auto& prompt : snapshot_.prompts)
                if (prompt->run_id == run.run->id) by_ordinal.emplace(prompt->ordinal, prompt.get());
        std::vector<TurnName> names;
        for (const auto& [ordinal, prompt] : by_ordinal) {
            places_[ordinal] = names.size();
            names.push_back({prompt->suite, prompt->external_id, prompt->turn});
        }
        const std::vector<std::size_t> conversations = group_conversations(names);
        for (const auto& [ordinal, prompt] : by_ordinal) {
            const std::size_t conversation = conversations[places_[ordinal]];
            samples_.prompts.push_back({prompt->category, conversation, 0});
            conversations_ = std::max(conversations_, conversation + 1);
        }
        std::size_t repetitions = 1;
        for (const MatrixRun& run : runs_) repetitions = std::max(repetitions, run.repetition + 1);
        samples_.methods.resize(methods_.size());
        for (BenchMethodSamples& method : samples_.methods)
            method.resize(repetitions, samples_.prompts.size());
    }

    void add(const MatrixRun& run) {
        const std::size_t m = methods_.at(run.method);
        if (run.run->drafter == plain_drafter) samples_.plain = m;
        BenchMethodSamples& samples = samples_.methods[m];
        for (const DrivenPrompt& prompt : driven_prompts(snapshot_, run.run->id)) {
            const PromptRow* about = snapshot_.prompt(prompt.prompt_id);
            if (about == nullptr) continue;
            const std::size_t place = places_.at(about->ordinal);
            samples.units[run.repetition][place] += prompt.unit;
            samples.prefill_ns[run.repetition][place] = static_cast<double>(about->prefill_ns);
        }
    }

    void add_row(const BenchTable& table, std::size_t m) {
        MatrixRow row;
        row.name = order_[m]->method;
        row.head = order_[m]->run->head;
        const BenchMacro& macro = table.rows[m].macro;
        row.cells.push_back({macro.tau_unclipped, macro.speedup, macro.end_to_end_speedup, ""});
        for (const BenchCell& cell : table.rows[m].tasks) {
            row.cells.push_back({std::nullopt, cell.speedup, cell.end_to_end_speedup, ""});
            if (cell.tau_unclipped > 0)
                row.cells.back().tau = Estimate{cell.tau_unclipped, cell.tau_unclipped_interval};
        }
        row.help = fmt::format("{}\n{:.1f} tokens per second over all prompts", row.name,
                               table.rows[m].all.tokens_per_second);
        model_.rows.push_back(std::move(row));
    }

    const Snapshot& snapshot_;
    MatrixModel model_;
    std::vector<MatrixRun> runs_;
    std::map<std::string, std::size_t> methods_;  ///< place in `order_`
    std::vector<const MatrixRun*> order_;         ///< the first run of each method
    std::map<int, std::size_t> places_;           ///< of prompts in the samples, by ordinal
    BenchSamples samples_;
    std::size_t conversations_ = 0;
};

/// Returns a setting's mean over tasks of tau, clipped or not, times `factor`. `tasks` has the task of each
/// conversation, -1 = left out. Absent without rounds.
std::optional<Estimate> task_mean(const SweepSetting& setting, std::span<const int> tasks, int count,
                                  bool unclipped, double factor, double relative_error) {
    std::vector<std::size_t> units;
    for (std::size_t u = 0; u < setting.units.size() && u < tasks.size(); ++u)
        if (tasks[u] >= 0) units.push_back(u);
    const auto mean = [&](std::span<const std::uint32_t> times_drawn) -> std::optional<double> {
        std::vector<double> rounds(count), tokens(count);
        for (std::size_t i = 0; i < units.size(); ++i) {
            const SweepUnit& unit = setting.units[units[i]];
            const double times = times_drawn.empty() ? 1 : times_drawn[i];
            rounds[tasks[units[i]]] += times * unit.rounds;
            tokens[tasks[units[i]]] += times * (unclipped ? unit.unclipped() : unit.committed);
        }
        double sum = 0, known = 0;
        for (int t = 0; t < count; ++t) {
            if (rounds[t] <= 0) continue;
            sum += tokens[t] / rounds[t];
            ++known;
        }
        return known > 0 ? std::optional(factor * sum / known) : std::nullopt;
    };
    const auto value = mean({});
    if (!value) return std::nullopt;
    BootstrapOptions options;
    options.resolution = relative_error;
    return bootstrap_estimate(*value, units.size(), mean, options);
}

std::optional<Estimate> figure(std::optional<double> value) {
    return value ? std::optional(Estimate{*value, std::nullopt}) : std::nullopt;
}

/// A mean that is absent if any value is.
struct MeanOfTasks {
    double sum = 0;
    int count = 0;
    bool complete = true;
    void add(std::optional<double> value) {
        sum += value.value_or(0);
        ++count;
        complete = complete && value;
    }
    std::optional<double> value() const {
        return complete && count > 0 ? std::optional(sum / count) : std::nullopt;
    }
};

/// Says in which figure a group's speeds are, if not in the shown one.
std::string speeds_note(const PublishedGroup& group, MatrixFigure figure) {
    const bool end_to_end = figure == MatrixFigure::end_to_end;
    if (figure == MatrixFigure::tau || group.rows.front()->with_prefill == end_to_end) return {};
    return fmt::format("{}'s speeds {}", group.rows.front()->short_name,
                       end_to_end ? "are of decoding: see x AR" : "include the prefill: see x AR end to end");
}

MatrixText cell_text(const MatrixCell& cell, MatrixFigure figure) {
    const std::optional<Estimate>& value = cell.value(figure);
    if (!value) return {value, "-", ""};
    MatrixText text{value, fmt::format("{:.2f}", value->value), estimate_text(*value, 3)};
    if (!cell.derived.empty()) text.help += "\n" + cell.derived;
    return text;
}

}  // namespace

MatrixModel build_matrix(const Snapshot& snapshot) {
    return MatrixBuilder(snapshot).build();
}

MatrixModel build_sweep_matrix(SweepSettings settings, std::span<const std::string> categories,
                               std::optional<std::size_t> usual) {
    MatrixModel model;
    if (settings.empty()) {
        model.empty_text = "Compares settings by task: sweep some in the Sweep panel.";
        return model;
    }
    model.columns = {mean_column};
    std::vector<int> task_of;  // of each conversation, the place of its column
    for (const std::string& category : categories) {
        const std::string task = task_of_category(category);
        const auto found = std::ranges::find(model.columns, task);
        task_of.push_back(static_cast<int>(found - model.columns.begin()));
        if (found == model.columns.end()) model.columns.push_back(task);
    }
    std::vector<std::size_t> rows = sweep_front(settings, settings[0].batch);
    if (usual && std::ranges::find(rows, *usual) == rows.end()) rows.push_back(*usual);
    const int columns = static_cast<int>(model.columns.size());
    for (const std::size_t r : rows) {
        const SweepSetting& setting = settings[r];
        MatrixRow row;
        row.help = setting_name(setting);
        row.name = (usual == r ? "default: " : "") + shorten_paths(row.help);
        row.head = setting.head;
        const double speed = setting.plain_ms / setting.round_ms, error = setting.cost_error.value_or(0);
        for (int column = 0; column < columns; ++column) {
            std::vector<int> shown = task_of;  // the first column has all
            for (int& task : shown)
                if (column > 0 && task != column) task = -1;
            row.cells.push_back({task_mean(setting, shown, columns, true, 1, 0),
                                 task_mean(setting, shown, columns, false, speed, error), std::nullopt, ""});
        }
        model.rows.push_back(std::move(row));
    }
    const SweepSetting& first = settings[0];
    model.note = fmt::format("predicted by replay, the front at batch {}{}; {}", first.batch,
                             usual ? " and the default" : "", interval_text(first.units.size()));
    if (!first.cost_error) model.note += "; they leave the profile's error out";
    model.note += "; speeds of decoding";
    return model;
}

std::vector<MatrixRow> published_matrix_rows(const PublishedGroup& group,
                                             std::span<const std::string> columns) {
    std::vector<MatrixRow> rows;
    for (const PublishedResult* result : group.rows) {
        MatrixRow row;
        row.name = published_label(*result);
        row.head = result->head;
        for (const std::string& line : describe_published(*result))
            row.help += (row.help.empty() ? "" : "\n") + line;
        const auto cell = [&](std::optional<double> tau, std::optional<double> speedup) {
            MatrixCell out{figure(tau), std::nullopt, std::nullopt, ""};
            (result->with_prefill ? out.end_to_end : out.speedup) = figure(speedup);
            return out;
        };
        row.printed = cell(result->tau, result->speedup_vs_ar);
        row.cells.resize(columns.size());
        MeanOfTasks tau, speedup;
        for (std::size_t c = 1; c < columns.size(); ++c) {
            const auto task = std::ranges::find(result->tasks, columns[c], &PublishedTask::name);
            const bool known = task != result->tasks.end();
            tau.add(known ? task->tau : std::nullopt);
            speedup.add(known ? task->speedup() : std::nullopt);
            if (!known) continue;
            row.cells[c] = cell(task->tau, task->speedup());
            if (task->is_derived())
                row.cells[c].derived = fmt::format("derived: {:g} / {:g} tokens per second",
                                                   *task->tokens_per_second, *task->plain_tokens_per_second);
        }
        if (!columns.empty()) {
            row.cells[0] = cell(tau.value(), speedup.value());
            row.cells[0].derived = "derived: mean of the tasks shown";
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

MatrixTable build_matrix_table(const MatrixModel& model, const PublishedGroup* group, MatrixFigure figure) {
    MatrixTable table;
    std::vector<MatrixRow> published;
    if (group != nullptr) {
        published = published_matrix_rows(*group, model.columns);
        table.note = speeds_note(*group, figure);
    }
    table.columns = model.columns;
    if (group != nullptr) table.columns.insert(table.columns.begin() + 1, printed_column);
    for (const std::vector<MatrixRow>* rows : {&model.rows, &std::as_const(published)})
        for (const MatrixRow& row : *rows) {
            MatrixLine line{row.name, row.head, row.help, rows == &published, {}};
            for (const MatrixCell& cell : row.cells) {
                line.cells.push_back(cell_text(cell, figure));
                if (group != nullptr && line.cells.size() == 1)
                    line.cells.push_back(cell_text(row.printed, figure));
            }
            if (line.published && std::ranges::none_of(line.cells, [](const MatrixText& cell) {
                    return cell.value.has_value();
                }))
                continue;
            for (const MatrixText& cell : line.cells)
                if (cell.value)
                    table.max = std::max(
                        table.max, cell.value->interval ? cell.value->interval->high : cell.value->value);
            table.lines.push_back(std::move(line));
        }
    return table;
}

const std::optional<Estimate>& MatrixCell::value(MatrixFigure figure) const {
    return figure == MatrixFigure::tau ? tau : figure == MatrixFigure::decoding ? speedup : end_to_end;
}

}  // namespace draftscope
