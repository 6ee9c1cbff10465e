/* The text of an asm statement becomes instructions. */
#include "ptx_code.h"

#include <cctype>
#include <map>

namespace emulator {
namespace ptx {

struct parsed {
    std::vector<instruction> list;
};

static std::string trimmed(const std::string &s) {
    size_t a = s.find_first_not_of(" \t\n"), b = s.find_last_not_of(" \t\n");
    return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

/* At separators that are in no brackets. */
static std::vector<std::string> split(const std::string &s, char separator) {
    std::vector<std::string> parts(1);
    int depth = 0;
    for (char c : s) {
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (c == separator && !depth)
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

typedef std::map<std::string, int> names;

static reference reference_of(const std::string &word, const names &locals) {
    reference r;
    if (word == "_") return r;
    auto local = locals.find(word);
    if (local != locals.end()) {
        r.kind = reference::LOCAL;
        r.index = local->second;
    } else if (word[0] == '%' && isdigit(word[1])) {
        r.kind = reference::OPERAND;
        r.index = std::stoi(word.substr(1));
    } else if (word[0] != '%') {
        r.kind = reference::NUMBER;
        r.number = std::stoull(word, nullptr, 0);
    }
    return r;
}

static action action_of(const std::string &name) {
    size_t longest = 0;
    action found = nullptr;
    for (const known *table :
         {plain_instructions, shared_instructions, copy_instructions, mma_instructions, wgmma_instructions})
        for (; table->name; table++) {
            size_t length = strlen(table->name);
            bool fits = name.compare(0, length, table->name) == 0 && (name.size() == length || name[length] == '.');
            if (!fits || length < longest) continue;
            longest = length;
            found = table->act;
        }
    if (!found) fail("an instruction that the emulator does not know: %s", name.c_str());
    return found;
}

static void branch(frame &f, const instruction &i) {
    f.next = (size_t)i.target;
}

static instruction instruction_of(std::string text, const names &locals) {
    instruction i;
    if (text[0] == '@') {
        size_t space = text.find(' ');
        i.guard = locals.at(text.substr(1, space - 1));
        text = trimmed(text.substr(space));
    }
    size_t space = text.find_first_of(" \n");
    i.name = text.substr(0, space);
    if (i.name == "bra") {
        i.act = branch;
        i.name += " " + trimmed(text.substr(space));
        return i;
    }
    i.act = action_of(i.name);
    if (space == std::string::npos) return i;
    for (const std::string &part : split(text.substr(space), ',')) {
        std::vector<reference> references;
        std::string word;
        for (char c : part + " ") {
            if (isalnum(c) || c == '_' || c == '%' || c == '.') {
                word += c;
            } else if (!word.empty()) {
                references.push_back(reference_of(word, locals));
                if (word.compare(0, 2, "%%") == 0 || (word[0] == '%' && !isdigit(word[1]))) i.name += " " + word;
                word.clear();
            }
        }
        i.parts.push_back(references);
    }
    return i;
}

/* { and } around all of the text. */
static std::string without_braces(const std::string &text) {
    std::string s = trimmed(text);
    return !s.empty() && s.front() == '{' ? s.substr(1, s.size() - 2) : s;
}

code::code(const char *text) : instructions(new parsed) {
    names locals, labels;
    for (std::string piece : split(without_braces(text), ';')) {
        piece = trimmed(piece);
        if (piece.empty()) continue;
        size_t colon = piece.find(":\n");
        if (piece.back() == ':') colon = piece.size() - 1;
        if (colon != std::string::npos) {
            labels[piece.substr(0, colon)] = (int)instructions->list.size();
            piece = trimmed(piece.substr(colon + 1));
        }
        if (piece.empty()) continue;
        if (piece.compare(0, 4, ".reg") == 0) {
            for (const std::string &name : split(piece.substr(piece.find(' ', 5)), ','))
                locals.emplace(trimmed(name), (int)locals.size());
            if (locals.size() > MOST_LOCALS) fail("too many registers in an asm statement");
            continue;
        }
        instructions->list.push_back(instruction_of(piece, locals));
    }
    for (instruction &i : instructions->list)
        if (i.act == branch) i.target = labels.at(i.name.substr(4));
}

code::~code() = default;

void code::run(const operand *operands) const {
    frame f;
    f.operands = operands;
    const std::vector<instruction> &list = instructions->list;
    while (f.next < list.size()) {
        const instruction &i = list[f.next++];
        if (i.guard < 0 || f.locals[i.guard]) i.act(f, i);
    }
}

} // namespace ptx
} // namespace emulator
