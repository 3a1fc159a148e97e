# cmake -DFROM=FOLDER -DTO=HEADER -P embed.cmake
#
# Writes a header with page.html as a byte array, style and scripts put into it,
# and the hashes by which its Content-Security-Policy lets these two run.
cmake_minimum_required(VERSION 3.22)

# The SHA-256 of `text` in base64: CMake itself has it in hexadecimal only.
function(hash_of text result)
  string(SHA256 hex "${text}")
  set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(out "")
  # 3 bytes are 4 digits; of the last group, which has 2 bytes, 3.
  foreach(group RANGE 0 10)
    math(EXPR at "${group} * 6")
    string(SUBSTRING "${hex}00" ${at} 6 bytes)
    foreach(shift 18 12 6 0)
      math(EXPR digit "(0x${bytes} >> ${shift}) & 63")
      string(SUBSTRING ${digits} ${digit} 1 digit)
      string(APPEND out ${digit})
    endforeach()
  endforeach()
  string(SUBSTRING ${out} 0 43 out)
  set(${result} "${out}=" PARENT_SCOPE)
endfunction()

file(READ ${FROM}/page.html page)
file(READ ${FROM}/page.css style)
set(script "")
foreach(part figure.js slab_map.js history.js hand_overs.js log_panel.js tables.js page.js)
  file(READ ${FROM}/${part} text)
  string(APPEND script "${text}")
endforeach()
hash_of("${style}" style_hash)
hash_of("${script}" script_hash)
string(REPLACE "<style></style>" "<style>${style}</style>" page "${page}")
string(REPLACE "<script></script>" "<script>${script}</script>" page
  "${page}")

file(WRITE ${TO}.html "${page}")
file(READ ${TO}.html hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${TO} "// Made by daemon/proxy/page/embed.cmake.
constexpr unsigned char kEmbeddedPage[] = {${bytes}};
constexpr char kEmbeddedStyleHash[] = \"${style_hash}\";
constexpr char kEmbeddedScriptHash[] = \"${script_hash}\";
")
