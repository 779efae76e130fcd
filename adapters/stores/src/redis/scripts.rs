//! The three scripts that carry out commands inside the server, where nothing else runs between their lines. They own
//! the layout of the keys; nothing else may touch those.
//!
//! All keys of a store begin with the hash tag `{NAMESPACE}`, so that a cluster keeps them in one slot:
//! - `{NAMESPACE}sequence`: how many versions were issued.
//! - `{NAMESPACE}keys`: a sorted set of all record keys, all of one score, so that it is in the order of their bytes.
//! - `{NAMESPACE}ends`: a sorted set of the record keys that end, by the microsecond of the server's time.
//! - `{NAMESPACE}:KEY`: the record, a hash of `value`, `version` and, where it ends, `expires` in those microseconds.
//!
//! Whether a record has ended is decided by `expires` alone. The server's own expiry is set a minute later, so that an
//! idle store gives the memory back without ever deciding anything. A record that is found ended is removed at once:
//! from then on no clock that steps back revives it.
//!
//! A version is the number of its issue and the server's time at it, so that a sequence that was set back (a restore, a
//! replica that lagged) issues no version again.
//!
//! None of the scripts says that it only reads, so a replica refuses them all: no read comes from one.

/// The part that all scripts begin with. `KEYS[1]`: the keys, `KEYS[2]`: the ends, `ARGV[1]`: what records begin with.
const COMMON: &str = "
local keys, ends, before = KEYS[1], KEYS[2], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function drop(name)
  redis.call('DEL', before .. name)
  redis.call('ZREM', keys, name)
  redis.call('ZREM', ends, name)
end
local function left(name, expires)
  if not expires then return '' end
  local rest = tonumber(expires) - now
  if rest > 0 then return string.format('%.0f', rest) end
  drop(name)
  return nil
end
";

/// `KEYS[3]`: the record, `ARGV[2]`: its name. Answers nothing, or value, version and what is left.
const READ: &str = "
local found = redis.call('HMGET', KEYS[3], 'value', 'version', 'expires')
if not found[2] then return false end
local rest = left(ARGV[2], found[3])
if not rest then return false end
return {found[1], found[2], rest}
";

/// `KEYS[3]`: the sequence, then the record of each condition and each mutation. `ARGV[2]`: how many conditions, then
/// a kind and a version for each of them, then a kind, a value and a time to live in microseconds for each mutation.
/// Answers nothing for a conflict, else the new versions.
const WRITE: &str = "
local conditions = tonumber(ARGV[2])
local key, arg = 4, 3
for _ = 1, conditions do
  local name = string.sub(KEYS[key], #before + 1)
  local found = redis.call('HMGET', KEYS[key], 'version', 'expires')
  local version = found[1]
  if version and not left(name, found[2]) then version = false end
  local kind = ARGV[arg]
  if kind == 'missing' then
    if version then return false end
  elseif not version then return false
  elseif kind == 'version' and version ~= ARGV[arg + 1] then return false end
  key, arg = key + 1, arg + 2
end
local puts = 0
for place = arg, #ARGV, 3 do
  if ARGV[place] == 'put' then puts = puts + 1 end
end
-- A script that fails half way is not undone. So whatever could fail on keys of a wrong kind comes before all changes.
redis.call('ZCARD', keys)
redis.call('ZCARD', ends)
local number = 0
if puts > 0 then number = redis.call('INCRBY', KEYS[3], puts) - puts end
local versions = {}
for place = arg, #ARGV, 3 do
  local name = string.sub(KEYS[key], #before + 1)
  if ARGV[place] == 'delete' then
    drop(name)
  else
    number = number + 1
    local version = string.format('%.0f-%.0f', number, now)
    versions[#versions + 1] = version
    redis.call('DEL', KEYS[key])
    redis.call('HSET', KEYS[key], 'value', ARGV[place + 1], 'version', version)
    redis.call('ZADD', keys, 0, name)
    if ARGV[place + 2] == '' then
      redis.call('ZREM', ends, name)
    else
      local expires = string.format('%.0f', now + tonumber(ARGV[place + 2]))
      redis.call('HSET', KEYS[key], 'expires', expires)
      redis.call('ZADD', ends, expires, name)
      redis.call('PEXPIREAT', KEYS[key], string.format('%.0f', math.ceil(tonumber(expires) / 1000) + 60000))
    end
  end
  key = key + 1
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', string.format('%.0f', now), 'LIMIT', 0, 4)) do
  drop(name)
end
return versions
";

/// `ARGV[2]` and `ARGV[3]`: the bounds, `ARGV[4]`: the most entries, `ARGV[5]`: the most bytes. Answers where the next
/// page begins (empty at the end), then key, value, version and what is left of each entry.
const SCAN: &str = "
local lower, entries, bytes = ARGV[2], 0, 0
local page = {''}
while true do
  local names = redis.call('ZRANGEBYLEX', keys, lower, ARGV[3], 'LIMIT', 0, 100)
  for _, name in ipairs(names) do
    local found = redis.call('HMGET', before .. name, 'value', 'version', 'expires')
    local rest = nil
    if found[2] then rest = left(name, found[3]) end
    if rest then
      bytes = bytes + #name + #found[1]
      if entries >= tonumber(ARGV[4]) or (bytes > tonumber(ARGV[5]) and entries > 0) then
        page[1] = name
        return page
      end
      entries = entries + 1
      page[#page + 1] = name
      page[#page + 1] = found[1]
      page[#page + 1] = found[2]
      page[#page + 1] = rest
    end
    lower = '(' .. name
  end
  if #names < 100 then return page end
end
";

/// A script and the name that the server knows it by.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
}

/// The scripts of the engine.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) read: Script,
    pub(super) write: Script,
    pub(super) scan: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        // Reads and scans go on when the memory is full. A write is refused then, before its first line.
        Self { read: script("allow-oom", READ), write: script("", WRITE), scan: script("allow-oom", SCAN) }
    }
}

fn script(flags: &str, body: &str) -> Script {
    let flags = if flags.is_empty() { String::new() } else { format!(" flags={flags}") };
    let text = format!("#!lua{flags}{COMMON}{body}");
    let hash = ::redis::Script::new(&text).get_hash().to_owned();
    Script { text, hash }
}
