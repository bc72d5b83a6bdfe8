# C source with comments and the contents of strings blanked; lines stay where they are.
{
    out = ""
    n = length($0)
    for (i = 1; i <= n; i++) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++ }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; out = out c }
        } else if (two == "/*") {
            in_comment = 1; i++; out = out " "
        } else if (two == "//") {
            break
        } else {
            if (c == "\"" || c == "'") quote = c
            out = out c
        }
    }
    quote = ""
    print out
}
