#include "engine/formats/pickle.h"

#include <algorithm>
#include <unordered_map>

#include "base/mapped_file.h"

namespace draftscope::pickle {

/// A callable that a state dict names: one that makes a dictionary, a tensor, what its first argument is, or
/// an element type.
struct Callable {
    enum class Kind { dictionary, tensor, first, storage };
    std::string_view module, name;
    Kind kind;
    std::string_view type = {};  ///< element type of a storage
};

namespace {

constexpr Callable element_type(std::string_view name, std::string_view type) {
    return {"torch", name, Callable::Kind::storage, type};
}

constexpr Callable callables[] = {
    {"collections", "OrderedDict", Callable::Kind::dictionary},
    {"torch._utils", "_rebuild_tensor_v2", Callable::Kind::tensor},
    {"torch._utils", "_rebuild_parameter", Callable::Kind::first},
    {"torch", "Size", Callable::Kind::first},
    element_type("DoubleStorage", "F64"),
    element_type("FloatStorage", "F32"),
    element_type("HalfStorage", "F16"),
    element_type("BFloat16Storage", "BF16"),
    element_type("LongStorage", "I64"),
    element_type("IntStorage", "I32"),
    element_type("ShortStorage", "I16"),
    element_type("CharStorage", "I8"),
    element_type("ByteStorage", "U8"),
    element_type("BoolStorage", "BOOL"),
};

// A state dict's pickle names tensors and does not contain their data.
constexpr std::size_t max_pickle_bytes = std::size_t{64} << 20;

using Values = std::vector<Value>;

/// The stack machine of Python's pickle module with the opcodes that torch.save writes for plain data and
/// tensors. Errors are thrown and caught in this file.
class Machine {
  public:
    Machine(std::span<const std::uint8_t> bytes, const std::string& path) : cursor_(bytes), path_(path) {}

    Document run() {
        for (auto code = number<std::uint8_t>(); code != '.'; code = number<std::uint8_t>()) step(code);
        if (stack_.size() != 1 || !marks_.empty()) damaged("it ends in the middle of a value");
        out_.root = stack_.back();
        return std::move(out_);
    }

  private:
    [[noreturn]] void damaged(std::string_view what) const {
        throw bad_input("{}: data.pkl is damaged at byte {}: {}", path_, cursor_.position(), what);
    }
    template <typename T>
    T found(const std::optional<T>& value) const {
        if (!value) throw bad_input("{}: data.pkl ends too early; the file is damaged", path_);
        return *value;
    }
    template <typename T>
    T number() {
        return found(cursor_.read<T>());
    }
    template <typename Length>
    std::string_view text() {
        return found(cursor_.read_text(number<Length>()));
    }
    std::string_view line() {
        ByteCursor start = cursor_;
        std::size_t length = 0;
        while (number<char>() != '\n') ++length;
        return *start.read_text(length);
    }
    /// Returns the alternative T of a value.
    template <typename T>
    const T& as(const Value& value, std::string_view otherwise) const {
        const T* const held = std::get_if<T>(&value);
        if (held == nullptr) damaged(otherwise);
        return *held;
    }
    const Values& items(const Value& tuple, std::size_t count, std::string_view otherwise) const {
        const Group* const group = as_group(tuple, Group::Kind::tuple);
        if (group == nullptr || group->items.size() < count) damaged(otherwise);
        return group->items;
    }

    std::vector<std::int64_t> extents(const Value& tuple, std::string_view otherwise) const {
        std::vector<std::int64_t> out;
        for (const Value& item : items(tuple, 0, otherwise)) {
            out.push_back(as<std::int64_t>(item, otherwise));
            if (out.back() < 0) damaged(otherwise);
        }
        return out;
    }

    void push(Value value) { stack_.push_back(std::move(value)); }
    void push_group(Group::Kind kind, Values items = {}) {
        out_.groups.push_back({kind, std::move(items)});
        push(&out_.groups.back());
    }
    /// Pops the top `count` values, in order; never past the latest mark.
    Values pop(std::size_t count) {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        if (stack_.size() - floor < count) damaged("an opcode has too few operands");
        const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
        Values out(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        return out;
    }
    Values pop_to_mark() {
        if (marks_.empty()) damaged("a group has no beginning");
        const std::size_t begin = marks_.back();
        marks_.pop_back();
        return pop(stack_.size() - begin);
    }
    void append(Group::Kind kind, const Values& items) {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        if (stack_.size() == floor || as_group(stack_.back(), kind) == nullptr)
            damaged("values are added to something other than a list or dictionary");
        if (kind == Group::Kind::dictionary && items.size() % 2 != 0)
            damaged("a dictionary key has no value");
        Values& all = std::get<Group*>(stack_.back())->items;
        all.insert(all.end(), items.begin(), items.end());
    }
    void remember(std::uint64_t key) {
        if (stack_.empty()) damaged("an empty stack is written to the memo");
        memo_[key] = stack_.back();
    }
    void push_memo(std::uint64_t key) {
        const auto entry = memo_.find(key);
        if (entry == memo_.end()) damaged("an unknown memo entry is read");
        push(entry->second);
    }

    void step(std::uint8_t code);
    void push_long();
    void push_callable(std::string_view module, std::string_view name);
    void push_storage();
    void push_tensor(const Values& arguments);
    void reduce();

    ByteCursor cursor_;
    const std::string& path_;
    Document out_;
    Values stack_;
    std::vector<std::size_t> marks_;  ///< stack sizes
    std::unordered_map<std::uint64_t, Value> memo_;
};

void Machine::step(std::uint8_t code) {
    using enum Group::Kind;
    switch (code) {
        case 0x80:  // PROTO
            return (void)number<std::uint8_t>();
        case 0x95:  // FRAME
            return (void)number<std::uint64_t>();
        case 'N':
            return push({});
        case 0x88:
        case 0x89:
            return push(code == 0x88);
        case 'J':
            return push(std::int64_t{number<std::int32_t>()});
        case 'K':
            return push(std::int64_t{number<std::uint8_t>()});
        case 'M':
            return push(std::int64_t{number<std::uint16_t>()});
        case 0x8a:
            return push_long();
        case 'G':  // big-endian, and of no use here
            return push(number<double>());
        case 'X':
            return push(text<std::uint32_t>());
        case 0x8c:
            return push(text<std::uint8_t>());
        case '(':
            return marks_.push_back(stack_.size());
        case '}':
            return push_group(dictionary);
        case ']':
            return push_group(list);
        case ')':
            return push_group(tuple);
        case 't':
            return push_group(tuple, pop_to_mark());
        case 0x85:
        case 0x86:
        case 0x87:
            return push_group(tuple, pop(code - 0x84u));
        case 's':
            return append(dictionary, pop(2));
        case 'u':
            return append(dictionary, pop_to_mark());
        case 'a':
            return append(list, pop(1));
        case 'e':
            return append(list, pop_to_mark());
        case 'q':
            return remember(number<std::uint8_t>());
        case 'r':
            return remember(number<std::uint32_t>());
        case 0x94:
            return remember(memo_.size());
        case 'h':
            return push_memo(number<std::uint8_t>());
        case 'j':
            return push_memo(number<std::uint32_t>());
        case 'c': {  // GLOBAL
            const std::string_view module = line();
            return push_callable(module, line());
        }
        case 0x93: {  // STACK_GLOBAL
            const Values names = pop(2);
            return push_callable(as<std::string_view>(names[0], "a callable has no name"),
                                 as<std::string_view>(names[1], "a callable has no name"));
        }
        case 'R':
            return reduce();
        case 'Q':
            return push_storage();
        case 'b':  // BUILD: attributes of a state dict, ignored
            pop(1);
            return append(dictionary, {});
        default:
            damaged(fmt::format("opcode {:#x} is not one of plain data and tensors", code));
    }
}

void Machine::push_long() {
    const std::string_view bytes = text<std::uint8_t>();
    if (bytes.size() > 8) damaged("a number is larger than 64 bits");
    std::uint64_t bits = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = bytes.size(); i-- > 0;) bits = bits << 8 | static_cast<std::uint8_t>(bytes[i]);
    push(static_cast<std::int64_t>(bits));
}

void Machine::push_callable(std::string_view module, std::string_view name) {
    for (const Callable& known : callables) {
        if (known.module == module && known.name == name) return push(&known);
    }
    throw bad_input(
        "{}: data.pkl creates a '{} {}', which is not supported (expected a dictionary of tensors); save "
        "the module's state_dict() as safetensors",
        path_, printable(module), printable(name));
}

/// ("storage", element type, key, device, elements)
void Machine::push_storage() {
    constexpr std::string_view wrong = "a storage has the wrong fields";
    const Value id = pop(1)[0];
    const Values& parts = items(id, 3, wrong);
    const Callable& type = *as<const Callable*>(parts[1], wrong);
    if (as<std::string_view>(parts[0], wrong) != "storage") damaged(wrong);
    if (type.type.empty()) damaged("a storage has no element type");
    push(Storage{as<std::string_view>(parts[2], wrong), type.type});
}

/// (storage, offset, shape, strides, ...)
void Machine::push_tensor(const Values& arguments) {
    constexpr std::string_view wrong = "a tensor has the wrong fields";
    if (arguments.size() < 4) damaged(wrong);
    const Storage& storage = as<Storage>(arguments[0], wrong);
    Tensor tensor{storage.key, storage.type, as<std::int64_t>(arguments[1], wrong),
                  extents(arguments[2], wrong), extents(arguments[3], wrong)};
    if (tensor.offset < 0) damaged(wrong);
    if (tensor.shape.size() != tensor.strides.size())
        damaged("a tensor's shape and strides differ in length");
    push(std::make_shared<const Tensor>(std::move(tensor)));
}

void Machine::reduce() {
    const Values call = pop(2);
    const Callable& callable = *as<const Callable*>(call[0], "a value that is not callable is called");
    const Values& arguments = items(call[1], 0, "a value that is not callable is called");
    switch (callable.kind) {
        case Callable::Kind::dictionary:
            if (!arguments.empty()) damaged("an ordered dictionary is made with arguments");
            return push_group(Group::Kind::dictionary);
        case Callable::Kind::tensor:
            return push_tensor(arguments);
        case Callable::Kind::first:
            if (arguments.empty()) damaged("a parameter or shape has the wrong fields");
            return push(arguments[0]);
        case Callable::Kind::storage:
            damaged("an element type is called");
    }
}

}  // namespace

const Group* as_group(const Value& value, Group::Kind kind) {
    const auto* const group = std::get_if<Group*>(&value);
    return group != nullptr && (*group)->kind == kind ? *group : nullptr;
}

Result<Document> read(std::span<const std::uint8_t> bytes, const std::string& path) {
    if (bytes.size() > max_pickle_bytes)
        return bad_input("{}: data.pkl is {} bytes long, more than any state dict's", path, bytes.size());
    try {
        return Machine(bytes, path).run();
    } catch (Error& error) {
        return std::move(error);
    }
}

}  // namespace draftscope::pickle
