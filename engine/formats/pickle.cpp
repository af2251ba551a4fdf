#include "engine/formats/pickle.h"

#include <array>
#include <bit>
#include <optional>

#include "base/mapped_file.h"

namespace draftscope {
namespace {

struct StorageType {
    std::string_view callable, type;
};
constexpr std::array storage_types = {
    StorageType{"torch DoubleStorage", "F64"}, StorageType{"torch FloatStorage", "F32"},
    StorageType{"torch HalfStorage", "F16"},   StorageType{"torch BFloat16Storage", "BF16"},
    StorageType{"torch LongStorage", "I64"},   StorageType{"torch IntStorage", "I32"},
    StorageType{"torch ShortStorage", "I16"},  StorageType{"torch CharStorage", "I8"},
    StorageType{"torch ByteStorage", "U8"},    StorageType{"torch BoolStorage", "BOOL"},
};
constexpr std::string_view ordered_dictionary = "collections OrderedDict";
constexpr std::string_view rebuild_tensor = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view rebuild_parameter = "torch._utils _rebuild_parameter";
constexpr std::string_view torch_size = "torch Size";

std::string_view storage_type(std::string_view callable) {
    for (const StorageType& known : storage_types) {
        if (known.callable == callable) return known.type;
    }
    return {};
}

bool is_known(std::string_view callable) {
    return callable == ordered_dictionary || callable == rebuild_tensor || callable == rebuild_parameter ||
           callable == torch_size || !storage_type(callable).empty();
}

// A state dict's pickle names tensors and does not contain their data.
constexpr std::size_t max_pickle_bytes = std::size_t{64} << 20;

}  // namespace

/// The stack machine of Python's pickle module, protocols 0 to 5, with the opcodes that torch.save writes for
/// plain data and tensors.
class Pickle::Machine {
  public:
    Machine(std::span<const std::uint8_t> bytes, const std::string& path, Pickle& out)
        : cursor_(bytes), path_(path), values_(out.values_) {}

    Result<Index> run() {
        while (true) {
            const auto code = cursor_.read<std::uint8_t>();
            if (!code) return truncated();
            if (*code == '.') break;
            DS_TRY(step(*code));
        }
        if (stack_.size() != 1 || !marks_.empty()) return damaged("it ends in the middle of a value");
        return stack_.back();
    }

  private:
    Error truncated() const { return bad_input("{}: data.pkl ends too early; the file is damaged", path_); }
    Error damaged(std::string_view what) const {
        return bad_input("{}: data.pkl is damaged at byte {}: {}", path_, cursor_.position(), what);
    }

    Index make(Kind kind) {
        values_.emplace_back();
        values_.back().kind = kind;
        return values_.size() - 1;
    }
    Status push(Kind kind, std::int64_t integer = 0) {
        stack_.push_back(make(kind));
        values_.back().integer = integer;
        return {};
    }
    Status push_text(std::optional<std::string_view> text) {
        if (!text) return truncated();
        stack_.push_back(make(Kind::text));
        values_.back().text = *text;
        return {};
    }
    /// Pops the top `count` values, in order; never past the latest mark.
    Result<std::vector<Index>> pop(std::size_t count) {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        if (stack_.size() - floor < count) return damaged("an opcode has too few operands");
        std::vector<Index> out(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
        stack_.resize(stack_.size() - count);
        return out;
    }
    Result<Index> pop_one() {
        DS_ASSIGN(const auto one, pop(1));
        return one.front();
    }
    Result<std::vector<Index>> pop_to_mark() {
        if (marks_.empty()) return damaged("a group has no beginning");
        const std::size_t begin = marks_.back();
        marks_.pop_back();
        std::vector<Index> out(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
        stack_.resize(begin);
        return out;
    }
    Result<Index> top(Kind kind, std::string_view what) const {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        if (stack_.size() == floor || values_[stack_.back()].kind != kind) return damaged(what);
        return stack_.back();
    }

    Status step(std::uint8_t code);
    Status step_text(std::uint8_t code);
    Status step_number(std::uint8_t code);
    Status step_group(std::uint8_t code);
    Status step_memo(std::uint8_t code);
    Status step_object(std::uint8_t code);
    Status append(Kind kind, const std::vector<Index>& items);
    Status push_group(Kind kind, std::vector<Index> items);
    Status push_callable(const std::string& name);
    Result<std::string> line();
    Status remember(std::optional<std::uint64_t> key);
    Status recall(std::optional<std::uint64_t> key);
    Status reduce();
    Status reduce_tensor(const std::vector<Index>& arguments);
    Status reduce_dictionary(const std::vector<Index>& arguments);
    Status load_storage();
    std::optional<std::vector<std::int64_t>> whole_numbers(Index index) const;

    ByteCursor cursor_;
    const std::string& path_;
    std::deque<Value>& values_;
    std::vector<Index> stack_;
    std::vector<std::size_t> marks_;  ///< stack sizes
    std::unordered_map<std::uint64_t, Index> memo_;
};

Status Pickle::Machine::step(std::uint8_t code) {
    switch (code) {
        case 0x80:
            return cursor_.skip(1) ? Status() : truncated();  // PROTO
        case 0x95:
            return cursor_.skip(8) ? Status() : truncated();  // FRAME
        case 'N':
            return push(Kind::none);
        case 0x88:
            return push(Kind::boolean, 1);
        case 0x89:
            return push(Kind::boolean, 0);
        case '(':
            marks_.push_back(stack_.size());
            return {};
        case 'X':
        case 0x8c:
        case 0x8d:
        case 'U':
        case 'T':
            return step_text(code);
        case 'J':
        case 'K':
        case 'M':
        case 0x8a:
        case 'G':
            return step_number(code);
        case '}':
        case ']':
        case ')':
        case 't':
        case 'l':
        case 'd':
        case 0x85:
        case 0x86:
        case 0x87:
        case 's':
        case 'u':
        case 'a':
        case 'e':
            return step_group(code);
        case 'q':
        case 'r':
        case 'h':
        case 'j':
        case 0x94:
            return step_memo(code);
        default:
            return step_object(code);
    }
}

Status Pickle::Machine::step_text(std::uint8_t code) {
    std::optional<std::uint64_t> length;
    if (code == 'X' || code == 'T') length = cursor_.read<std::uint32_t>();
    if (code == 0x8c || code == 'U') length = cursor_.read<std::uint8_t>();
    if (code == 0x8d) length = cursor_.read<std::uint64_t>();
    if (!length) return truncated();
    return push_text(cursor_.read_text(*length));
}

Status Pickle::Machine::step_number(std::uint8_t code) {
    std::optional<std::int64_t> value;
    if (code == 'J') value = cursor_.read<std::int32_t>();
    if (code == 'K') value = cursor_.read<std::uint8_t>();
    if (code == 'M') value = cursor_.read<std::uint16_t>();
    if (code == 'G') {
        if (!cursor_.skip(8)) return truncated();
        return push(Kind::real);
    }
    if (code == 0x8a) {
        const auto length = cursor_.read<std::uint8_t>();
        const auto bytes = length ? cursor_.read_text(*length) : std::nullopt;
        if (!bytes) return truncated();
        if (bytes->size() > 8) return damaged("a number is larger than 64 bits");
        std::uint64_t bits = !bytes->empty() && (bytes->back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
        for (std::size_t i = bytes->size(); i-- > 0;)
            bits = bits << 8 | static_cast<std::uint8_t>((*bytes)[i]);
        value = std::bit_cast<std::int64_t>(bits);
    }
    if (!value) return truncated();
    return push(Kind::integer, *value);
}

Status Pickle::Machine::push_group(Kind kind, std::vector<Index> items) {
    stack_.push_back(make(kind));
    values_.back().items = std::move(items);
    return {};
}

Status Pickle::Machine::append(Kind kind, const std::vector<Index>& items) {
    DS_ASSIGN(const Index group, top(kind, "values are added to something other than a list or dictionary"));
    if (kind == Kind::dictionary && items.size() % 2 != 0) return damaged("a dictionary key has no value");
    auto& all = values_[group].items;
    all.insert(all.end(), items.begin(), items.end());
    return {};
}

Status Pickle::Machine::step_group(std::uint8_t code) {
    switch (code) {
        case '}':
            return push_group(Kind::dictionary, {});
        case ']':
            return push_group(Kind::list, {});
        case ')':
            return push_group(Kind::tuple, {});
        case 0x85:
        case 0x86:
        case 0x87: {
            DS_ASSIGN(auto items, pop(code - 0x84u));
            return push_group(Kind::tuple, std::move(items));
        }
        case 's':
        case 'a': {
            DS_ASSIGN(const auto items, pop(code == 's' ? 2 : 1));
            return append(code == 's' ? Kind::dictionary : Kind::list, items);
        }
        default:
            break;
    }
    DS_ASSIGN(auto items, pop_to_mark());
    switch (code) {
        case 'u':
            return append(Kind::dictionary, items);
        case 'e':
            return append(Kind::list, items);
        case 'd':
            if (items.size() % 2 != 0) return damaged("a dictionary key has no value");
            return push_group(Kind::dictionary, std::move(items));
        case 'l':
            return push_group(Kind::list, std::move(items));
        default:
            return push_group(Kind::tuple, std::move(items));
    }
}

Status Pickle::Machine::remember(std::optional<std::uint64_t> key) {
    if (!key) return truncated();
    if (stack_.empty()) return damaged("an empty stack is written to the memo");
    memo_[*key] = stack_.back();
    return {};
}

Status Pickle::Machine::recall(std::optional<std::uint64_t> key) {
    if (!key) return truncated();
    const auto found = memo_.find(*key);
    if (found == memo_.end()) return damaged("an unknown memo entry is read");
    stack_.push_back(found->second);
    return {};
}

Status Pickle::Machine::step_memo(std::uint8_t code) {
    switch (code) {
        case 'q':
            return remember(cursor_.read<std::uint8_t>());
        case 'r':
            return remember(cursor_.read<std::uint32_t>());
        case 0x94:
            return remember(memo_.size());
        case 'h':
            return recall(cursor_.read<std::uint8_t>());
        default:
            return recall(cursor_.read<std::uint32_t>());
    }
}

Result<std::string> Pickle::Machine::line() {
    std::string out;
    while (true) {
        const auto byte = cursor_.read<char>();
        if (!byte) return truncated();
        if (*byte == '\n') return out;
        out.push_back(*byte);
    }
}

Status Pickle::Machine::push_callable(const std::string& name) {
    if (!is_known(name)) {
        return bad_input(
            "{}: data.pkl creates a '{}', which is not supported (expected a dictionary of tensors); save "
            "the module's state_dict() as safetensors",
            path_, printable(name));
    }
    stack_.push_back(make(Kind::callable));
    values_.back().text = name;
    return {};
}

Status Pickle::Machine::step_object(std::uint8_t code) {
    switch (code) {
        case 'c': {  // GLOBAL
            DS_ASSIGN(const std::string module, line());
            DS_ASSIGN(const std::string name, line());
            return push_callable(module + " " + name);
        }
        case 0x93: {  // STACK_GLOBAL
            DS_ASSIGN(const auto names, pop(2));
            for (const Index index : names)
                if (values_[index].kind != Kind::text) return damaged("a callable has no name");
            return push_callable(values_[names[0]].text + " " + values_[names[1]].text);
        }
        case 'R':
            return reduce();
        case 'Q':
            return load_storage();
        case 'b': {  // BUILD: attributes of a state dict, ignored
            DS_TRY(pop_one());
            DS_TRY(top(Kind::dictionary, "an object other than a dictionary has a state"));
            return {};
        }
        default:
            return damaged(fmt::format("opcode {:#x} is not one of plain data and tensors", code));
    }
}

std::optional<std::vector<std::int64_t>> Pickle::Machine::whole_numbers(Index index) const {
    const Value& group = values_[index];
    if (group.kind != Kind::tuple && group.kind != Kind::list) return std::nullopt;
    std::vector<std::int64_t> out;
    for (const Index item : group.items) {
        if (values_[item].kind != Kind::integer || values_[item].integer < 0) return std::nullopt;
        out.push_back(values_[item].integer);
    }
    return out;
}

/// ("storage", element type, key, device, elements)
Status Pickle::Machine::load_storage() {
    DS_ASSIGN(const Index id, pop_one());
    const std::vector<Index>& parts = values_[id].items;
    if (values_[id].kind != Kind::tuple || parts.size() < 3 || values_[parts[0]].text != "storage" ||
        values_[parts[1]].kind != Kind::callable || values_[parts[2]].kind != Kind::text) {
        return damaged("a storage has the wrong fields");
    }
    const std::string_view type = storage_type(values_[parts[1]].text);
    if (type.empty()) return damaged("a storage has no element type");
    std::string key = values_[parts[2]].text;
    stack_.push_back(make(Kind::storage));
    values_.back().type = type;
    values_.back().text = std::move(key);
    return {};
}

/// (storage, offset, shape, strides, ...)
Status Pickle::Machine::reduce_tensor(const std::vector<Index>& arguments) {
    if (arguments.size() < 4 || values_[arguments[0]].kind != Kind::storage ||
        values_[arguments[1]].kind != Kind::integer || values_[arguments[1]].integer < 0) {
        return damaged("a tensor has the wrong fields");
    }
    auto shape = whole_numbers(arguments[2]);
    auto strides = whole_numbers(arguments[3]);
    if (!shape || !strides || shape->size() != strides->size())
        return damaged("a tensor's shape and strides differ in length");
    Tensor tensor;
    tensor.storage = values_[arguments[0]].text;
    tensor.type = values_[arguments[0]].type;
    tensor.offset = values_[arguments[1]].integer;
    tensor.shape = std::move(*shape);
    tensor.strides = std::move(*strides);
    stack_.push_back(make(Kind::tensor));
    values_.back().tensor = std::move(tensor);
    return {};
}

Status Pickle::Machine::reduce_dictionary(const std::vector<Index>& arguments) {
    std::vector<Index> entries;
    if (!arguments.empty()) {
        for (const Index pair : values_[arguments[0]].items) {
            if (values_[pair].items.size() != 2) return damaged("a dictionary entry is not a pair");
            const Index key = values_[pair].items[0], value = values_[pair].items[1];
            entries.push_back(key);
            entries.push_back(value);
        }
    }
    return push_group(Kind::dictionary, std::move(entries));
}

Status Pickle::Machine::reduce() {
    DS_ASSIGN(const auto call, pop(2));
    if (values_[call[0]].kind != Kind::callable || values_[call[1]].kind != Kind::tuple)
        return damaged("a value that is not callable is called");
    const std::string_view name = values_[call[0]].text;
    const std::vector<Index>& arguments = values_[call[1]].items;
    if (name == ordered_dictionary) return reduce_dictionary(arguments);
    if (name == rebuild_tensor) return reduce_tensor(arguments);
    if (name == rebuild_parameter) {
        if (arguments.empty() || values_[arguments[0]].kind != Kind::tensor)
            return damaged("a parameter holds no tensor");
        stack_.push_back(arguments[0]);
        return {};
    }
    if (name == torch_size) {
        if (arguments.size() != 1) return damaged("a shape has the wrong fields");
        stack_.push_back(arguments[0]);
        return {};
    }
    return damaged("an element type is called");
}

Result<Pickle> Pickle::read(std::span<const std::uint8_t> bytes, const std::string& path) {
    if (bytes.size() > max_pickle_bytes)
        return bad_input("{}: data.pkl is {} bytes long, more than any state dict's", path, bytes.size());
    Pickle out;
    Machine machine(bytes, path, out);
    DS_ASSIGN(out.root_, machine.run());
    return out;
}

}  // namespace draftscope
