#!lua name=sluice1
-- The fourteen functions of the store, schemas 1 and 2. Names carry the version, so that sl2_* can be loaded beside them.
--
-- KEYS (all functions): 1 objects (hash)  2 revisions (hash: "<id> <token> <uid>")  3 log (stream)  4 meta (hash)  5 epochs (hash)
--   meta: epoch, last, floor, schema, init, count, bytes, raised
--   log:  k key, t type (0 create, 1 update, 2 delete, 9 fence), m previous ID of the object, p previous ID of the log,
--         w writer token, v new value (not on delete), o old value (not on create, not when it is long)
-- A function that fails midway is not rolled back: everything is checked first, the rights of its caller too, and XADD, the only write
-- that may be refused (OOM, MISCONF, NOREPLICAS, an epoch that has passed), comes before all others. IDs stay strings: a Lua number
-- holds 53 bits.
-- Answers start with a word. {'LOST', why}: the resource's keys are not (all) there, nothing was done. {'FOREIGN', last}: the log does
-- not end where this process has left it, nothing was done; `fence` first.
--
-- Who may write. A process goes on only with a log that it has left as it is: `left` remembers in the process's own memory, which no
-- restart, replication, restore or reload brings back, the last ID that this process gave out. A process that was started, promoted
-- or synchronised from another has no memory of the log; one whose data were replaced under it remembers another end. Both refuse
-- every write until `fence` has started an epoch of their own. A change takes the ID behind `last`, whatever the stream ends with, and
-- where that is taken the log is foreign. So an ID is never given out twice, whoever has not noticed yet.
--
-- An epoch is a moment. `fence` takes the highest of the stored one, the highest that its caller has met, and now; and goes on from
-- there by a random step that the caller draws (docs/storage.md). The schema of a log says how its epochs count and where n ends. A log
-- keeps the schema that `init` gave it. Revisions of schema 2 are below 2^53, so that JavaScript clients read them exactly.

local OLD_VALUE_LIMIT = 8388608         -- a longer old value is left out of the log; the floor rises to that entry instead
local SMALL_EPOCHS = 2 ^ 41             -- epochs of schema 2 are below it, those of schema 1 at or above it (watchcache/keys.py)
-- zero: ms since 1970 of epoch 0. per_ms: epochs in a millisecond. step: what the caller's step, in 65536ths of a second, is divided by.
-- n_limit: past this n the epoch is raised, which continues the log. n_end: n must stay below it; a batch takes 64 of them.
local SCHEMAS = {
  ['1'] = { zero = 1735689600000, per_ms = 65.536, step = 1, n_limit = 65536 - 1024, n_end = 65536 },  -- since 2025-01-01T00:00:00Z
  ['2'] = { zero = 1767225600000, per_ms = 1.024, step = 64, n_limit = 4096 - 128, n_end = 4096 },     -- since 2026-01-01T00:00:00Z
}
local TRIM_STEP = 5000                  -- entries removed by one call of floor
local IN_STEP_SECONDS = 2               -- a replica tells its offset every second: one that missed two is not in step (durability.py)

-- init marker of a log -> the last ID that this process gave out there
local left = {}
-- init marker of a log -> the epoch of another primary that has taken it over; this one refuses it until a `fence` that knows better
local deposed = {}

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- How many replicas have told their offset lately. They may lack the last writes: WAIT tells that.
local function in_step()
  local found = 0
  for state, lag in string.gmatch(redis.call('INFO', 'replication'), 'slave%d+:[^\r\n]-state=([%a_]+)[^\r\n]-lag=(%d+)') do
    if state == 'online' and tonumber(lag) <= IN_STEP_SECONDS then found = found + 1 end
  end
  return found
end

-- The first epoch above all of these and above the clock, by a random step.
local function next_epoch(schema, step, ...)
  local form = SCHEMAS[schema]
  local clock = math.floor((now_ms() - form.zero) * form.per_ms)
  return math.max(0, clock, ...) + math.ceil(tonumber(step) / form.step)
end

local function int(number)
  return string.format('%.0f', number)
end

local function split(id)
  local epoch, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(epoch), tonumber(n)
end

-- Is ID a below ID b?
local function below(a, b)
  local ae, an = split(a)
  local be, bn = split(b)
  return ae < be or (ae == be and an < bn)
end

-- Reads the state of a log before a write. Returns nil and the reason if the log has none.
local function open(keys)
  local m = redis.call('HMGET', keys[4], 'epoch', 'last', 'count', 'bytes', 'init', 'schema')
  if not m[1] then return nil, 'no meta' end
  local count = tonumber(m[3])
  if redis.call('HLEN', keys[2]) ~= count then return nil, 'revisions do not match the count' end
  if redis.call('HLEN', keys[1]) ~= count then return nil, 'objects do not match the count' end
  local form = SCHEMAS[m[6]]
  if not form then return nil, 'unknown schema' end
  return { epoch = m[1], last = m[2], count = count, bytes = tonumber(m[4]), init = m[5], form = form }
end

-- What must not fail behind an XADD: the caller's right to write down what the log says. nil, or an error.
local function no_right(keys)
  if redis.acl_check_cmd('HSET', keys[1], '', '') and redis.acl_check_cmd('HDEL', keys[1], '') then return nil end
  return redis.error_reply('NOPERM this user may not run HSET and HDEL on the objects')
end

-- Appends the entry that starts a new epoch. Returns nil when the log is gone, an error table when XADD was refused.
local function start_epoch(keys, state, epoch, starter)
  local id = redis.pcall('XADD', keys[3], 'NOMKSTREAM', int(epoch) .. '-*',
    'k', '', 't', '9', 'm', '-', 'p', state.last, 'w', starter)
  if not id then return nil end
  if type(id) == 'table' then return id end
  local _, n = split(state.last)
  redis.call('HSET', keys[5], state.epoch, int(n))
  redis.call('HSET', keys[4], 'epoch', int(epoch), 'last', id)
  state.epoch, state.last = int(epoch), id
  left[state.init] = id
  return id
end

-- One put or delete; `settle` must follow. The answer is a table whose first member is a word, or an error table.
-- A deletion takes 'old' for `uid` when its caller wants to be told the value that it deleted.
local function change(keys, state, kind, key, expected, token, uid, value)
  local row = redis.call('HGET', keys[2], key)
  local id, old
  if row then
    local writer
    id, writer = string.match(row, '^(%S+) (%S+)')
    if writer == token then
      state.changed = true -- another connection wrote it: `settle` writes on this one, so that WAIT covers it
      return { 'DUP', id }
    end
    old = redis.call('HGET', keys[1], key)
    if not old then return { 'LOST', 'object without value' } end
    if expected == '-' then return { 'EXISTS', id, old } end
    if expected ~= '*' and expected ~= id then return { 'CONFLICT', id, old } end
  elseif expected ~= '-' and not (expected == '*' and kind == 'put') then
    return { 'NOTFOUND' }
  end

  local _, n = split(state.last)
  if n + 1 >= state.form.n_end then -- the epoch could not be raised in time: `fence` does it
    left[state.init] = nil
    return { 'FOREIGN', state.last }
  end
  local entry = { 'XADD', keys[3], 'NOMKSTREAM', state.epoch .. '-' .. int(n + 1),
    'k', key, 't', kind == 'del' and '2' or (old and '1' or '0'), 'm', id or '-', 'p', state.last, 'w', token }
  if kind == 'put' then
    entry[15], entry[16] = 'v', value
  end
  local cut = old and #old > OLD_VALUE_LIMIT
  if old then
    if not cut then
      entry[#entry + 1] = 'o'
      entry[#entry + 1] = old
    end
  end
  local new = redis.pcall(unpack(entry))
  if not new then return { 'LOST', 'no log' } end
  if type(new) == 'table' then
    if string.find(new.err, 'equal or smaller', 1, true) then
      left[state.init] = nil -- somebody else has written to the log
      return { 'FOREIGN', state.last }
    end
    return new
  end

  state.last, state.changed = new, true
  if cut then state.floor = new end
  if kind == 'put' then
    redis.call('HSET', keys[2], key, new .. ' ' .. token .. ' ' .. uid)
    redis.call('HSET', keys[1], key, value)
    state.bytes = state.bytes + #value - (old and #old or 0)
    if not old then state.count = state.count + 1 end
  else
    redis.call('HDEL', keys[1], key)
    redis.call('HDEL', keys[2], key)
    state.bytes = state.bytes - #old
    state.count = state.count - 1
    if uid == 'old' then return { 'OK', new, old } end
  end
  return { 'OK', new }
end

-- Writes down what changes have made of the state: once per call, because it costs as much as half a change.
local function settle(keys, state)
  if not state.changed then return end
  redis.call('HSET', keys[4], 'last', state.last, 'count', int(state.count), 'bytes', int(state.bytes))
  left[state.init] = state.last
  if state.floor then redis.call('HSET', keys[4], 'floor', state.floor) end
end

-- What must hold before a write: the log is there and as this process left it, the writer's epoch is the current one, its time
-- has not passed, and enough replicas are in step (`need` is nil where the caller demands none).
local function admit(keys, epoch, deadline, need)
  local state, why = open(keys)
  if not state then return nil, { 'LOST', why } end
  if left[state.init] ~= state.last then return nil, { 'FOREIGN', state.last } end
  if state.epoch ~= epoch then return nil, { 'EPOCH', state.epoch } end
  local now = now_ms()
  if now > tonumber(deadline) then return nil, { 'LATE', int(now) } end
  if need then
    local found = in_step()
    if found < tonumber(need) then return nil, { 'FEW', int(found) } end
  end
  local refused = no_right(keys)
  if refused then return nil, refused end
  return state
end

-- Raises the epoch when n is about to leave its bits: writers get EPOCH next, readers see an ordinary fence entry.
local function roll_over(keys, state)
  local epoch, n = split(state.last)
  if n >= state.form.n_limit then start_epoch(keys, state, epoch + 1, '-') end
end

-- put
--   ARGV    epoch, deadline (ms of the server's clock), key, expected ('-' absent, an ID, '*' anything), token, uid, value,
--           replicas that must be in step (optional)
--   returns {'OK', id} | {'DUP', id} (this token's write is the current one) | {'EXISTS', id, value} | {'CONFLICT', id, value}
--           | {'NOTFOUND'} | {'EPOCH', current} | {'LATE', now ms} | {'FEW', replicas in step} | {'FOREIGN', last} | {'LOST', why}
local function put(keys, args)
  local state, refusal = admit(keys, args[1], args[2], args[8])
  if not state then return refusal end
  local answer = change(keys, state, 'put', args[3], args[4], args[5], args[6], args[7])
  settle(keys, state)
  roll_over(keys, state)
  return answer
end

-- del: allowed when memory is full, so that operators can dig themselves out
--   ARGV    epoch, deadline, key, expected (an ID, '*' anything), token, 'old' or '-', replicas that must be in step (optional)
--   returns {'OK', id} or, asked for 'old', {'OK', id, value} | {'CONFLICT', id, value} | {'NOTFOUND'}
--           | {'EPOCH', current} | {'LATE', now ms} | {'FEW', replicas in step} | {'FOREIGN', last} | {'LOST', why}
local function del(keys, args)
  local state, refusal = admit(keys, args[1], args[2], args[7])
  if not state then return refusal end
  local answer = change(keys, state, 'del', args[3], args[4], args[5], args[6])
  settle(keys, state)
  roll_over(keys, state)
  return answer
end

-- batch: up to 64 changes, each with its own entry and its own answer
--   ARGV    epoch, deadline, then per change: 'put'|'del', key, expected, token, uid (of del: 'old' or '-'), value ('' for del);
--           then replicas that must be in step (optional)
--   returns {'OK', answer, answer, …} with the answers of put and del
--           | {'EPOCH', current} | {'LATE', now ms} | {'FEW', replicas in step} | {'FOREIGN', last} | {'LOST', why}
local function batch(keys, args)
  local need = (#args - 2) % 6
  local upto = #args - need
  if need > 1 or upto > 2 + 64 * 6 then return redis.error_reply('ERR sl1_batch takes up to 64 changes') end
  local state, refusal = admit(keys, args[1], args[2], need == 1 and args[#args] or nil)
  if not state then return refusal end
  local answers = { 'OK' }
  for i = 3, upto, 6 do
    local went, answer = pcall(change, keys, state, args[i], args[i + 1], args[i + 2], args[i + 3], args[i + 4], args[i + 5])
    if not went then
      settle(keys, state) -- what is in the log stays there
      error(answer)
    end
    if answer.err then answer = { 'ERR', answer.err } end
    answers[#answers + 1] = answer
  end
  settle(keys, state)
  roll_over(keys, state)
  return answers
end

-- head: the barrier
--   ARGV    epoch (optional): one that the caller knows, '' for none; '1' (optional) asks for the replicas in step
--   returns {'OK', epoch, last, floor, '1' if this process may write else '0', count, bytes, now ms,
--           n at which the given epoch was fenced ('' if it was not), init, schema, and if asked the replicas in step}
--           | {'LOST', why}
local function head(keys, args)
  local m = redis.call('HMGET', keys[4], 'epoch', 'last', 'floor', 'count', 'bytes', 'init', 'schema')
  if not m[1] then return { 'LOST', 'no meta' } end
  if redis.call('EXISTS', keys[3]) == 0 then return { 'LOST', 'no log' } end
  local count = tonumber(m[4])
  if redis.call('HLEN', keys[2]) ~= count then return { 'LOST', 'revisions do not match the count' } end
  if redis.call('HLEN', keys[1]) ~= count then return { 'LOST', 'objects do not match the count' } end
  -- A replica answers as well, and one that was the primary still has its memory.
  local primary = string.find(redis.call('INFO', 'replication'), 'role:master', 1, true)
  local own = left[m[6]] == m[2] and primary and '1' or '0'
  local fenced = args[1] and redis.call('HGET', keys[5], args[1]) or ''
  local answer = { 'OK', m[1], m[2], m[3], own, m[4], m[5], int(now_ms()), fenced, m[6], m[7] }
  if args[2] == '1' then answer[12] = int(in_step()) end
  return answer
end

-- touch: writes what is there already. WAIT counts only what its own connection wrote; behind a touch it covers all that the log holds.
--   returns {'OK', last} | {'FOREIGN', last} | {'LOST', why}
local function touch(keys)
  local state, why = open(keys)
  if not state then return { 'LOST', why } end
  if left[state.init] ~= state.last then return { 'FOREIGN', state.last } end
  redis.call('HSET', keys[4], 'last', state.last)
  return { 'OK', state.last }
end

-- range: log entries in order
--   ARGV    after (an ID, exclusive), count, bytes (about where to stop)
--   returns {'OK', floor, last, entries as XRANGE gives them} | {'LOST', why}
local function range(keys, args)
  local m = redis.call('HMGET', keys[4], 'floor', 'last')
  if not m[1] then return { 'LOST', 'no meta' } end
  if redis.call('EXISTS', keys[3]) == 0 then return { 'LOST', 'no log' } end
  local after, left, room, entries = args[1], tonumber(args[2]), tonumber(args[3]), {}
  while left > 0 and room > 0 do
    local step = math.min(left, 32)
    local part = redis.call('XRANGE', keys[3], '(' .. after, '+', 'COUNT', step)
    for i = 1, #part do
      local fields = part[i][2]
      for j = 2, #fields, 2 do room = room - #fields[j] end
      entries[#entries + 1] = part[i]
      if room <= 0 then break end
    end
    if #part < step then break end
    after = entries[#entries][1]
    left = left - step
  end
  return { 'OK', m[1], m[2], entries }
end

-- scan: one step over all objects, key, ID and value taken at one moment
--   ARGV    cursor, count, newest (optional): objects that were changed after this ID are left out
--   returns {'OK', next cursor, last, {key, id, value, …}} | {'LOST', why}
local function scan(keys, args)
  local last = redis.call('HGET', keys[4], 'last')
  if not last then return { 'LOST', 'no meta' } end
  local found = redis.call('HSCAN', keys[2], args[1], 'COUNT', args[2])
  local rows, newest = found[2], args[3]
  local names, ids, out = {}, {}, {}
  for i = 1, #rows, 2 do
    local id = string.match(rows[i + 1], '^%S+')
    if not newest or not below(newest, id) then
      names[#names + 1] = rows[i]
      ids[#ids + 1] = id
    end
  end
  for first = 1, #names, 1000 do
    local upto = math.min(first + 999, #names)
    local values = redis.call('HMGET', keys[1], unpack(names, first, upto))
    for i = first, upto do
      local value = values[i - first + 1]
      if not value then return { 'LOST', 'object without value' } end
      local at = #out
      out[at + 1] = names[i]
      out[at + 2] = ids[i]
      out[at + 3] = value
    end
  end
  return { 'OK', found[1], last, out }
end

-- digest: one step over the revisions alone
--   ARGV    cursor, count
--   returns {'OK', next cursor, last, {key, id, …}} | {'LOST', why}
local function digest(keys, args)
  local last = redis.call('HGET', keys[4], 'last')
  if not last then return { 'LOST', 'no meta' } end
  local found = redis.call('HSCAN', keys[2], args[1], 'COUNT', args[2])
  local rows = found[2]
  for i = 2, #rows, 2 do rows[i] = string.match(rows[i], '^%S+') end
  return { 'OK', found[1], last, rows }
end

-- fence: this process takes the log over under a new epoch, unless the log is its own and no lower than what the caller has met
--   ARGV    a name for this process, the highest epoch of this log that the caller has met, a random step (at least 1),
--           '1' if a majority of the sentinels names this server as the primary now (optional)
--   returns {'OK', epoch, last, '1' if a new epoch was started else '0'} | {'DEPOSED', epoch of another primary} | {'LOST', why}
local function fence(keys, args)
  local m = redis.call('HMGET', keys[4], 'epoch', 'last', 'init', 'schema')
  if not m[1] then return { 'LOST', 'no meta' } end
  if not SCHEMAS[m[4]] then return { 'LOST', 'unknown schema' } end
  local stored, met = tonumber(m[1]), tonumber(args[2])
  if m[4] == '2' and met >= SMALL_EPOCHS and stored < SMALL_EPOCHS then met = 0 end -- of another store: no revision of it is one of ours
  local above = deposed[m[3]]
  if above and args[4] ~= '1' then return { 'DEPOSED', int(above) } end
  if left[m[3]] == m[2] and stored >= met then return { 'OK', m[1], m[2], '0' } end
  local refused = no_right(keys)
  if refused then return refused end
  local state = { epoch = m[1], last = m[2], init = m[3] }
  local id = start_epoch(keys, state, next_epoch(m[4], args[3], stored, met, above or 0), args[1])
  if not id then return { 'LOST', 'no log' } end
  if type(id) == 'table' then return id end
  deposed[m[3]] = nil
  return { 'OK', state.epoch, id, '1' }
end

-- depose: another primary has taken this log over. Changes no key, so that it needs no replica and no right to write.
--   ARGV    init marker of the log, epoch of the other primary
--   returns {'OK', '1' if this process refuses the log from now on else '0'} | {'LOST', why}
local function depose(keys, args)
  local m = redis.call('HMGET', keys[4], 'epoch', 'init')
  if not m[1] then return { 'LOST', 'no meta' } end
  local epoch = tonumber(args[2])
  local primary = string.find(redis.call('INFO', 'replication'), 'role:master', 1, true)
  if m[2] ~= args[1] or not primary or tonumber(m[1]) >= epoch then return { 'OK', '0' } end
  deposed[m[2]] = math.max(deposed[m[2]] or 0, epoch)
  left[m[2]] = nil
  return { 'OK', '1' }
end

-- The highest ID that the floor may take when `keep` entries must stay: n is dense inside an epoch, and T:e says where each ended.
local function highest_floor(keys, last, keep)
  local epoch, n = split(last)
  if n >= keep then return int(epoch) .. '-' .. int(n - keep) end
  local found = redis.call('HSCAN', keys[5], '0', 'COUNT', '100000')[2]
  local past = {}
  for i = 1, #found, 2 do past[#past + 1] = { tonumber(found[i]), tonumber(found[i + 1]) } end
  table.sort(past, function(a, b) return a[1] > b[1] end)
  keep = keep - n - 1
  for _, ended in ipairs(past) do
    if ended[1] < epoch then
      if ended[2] >= keep then return int(ended[1]) .. '-' .. int(ended[2] - keep) end
      keep = keep - ended[2] - 1
    end
  end
  return nil
end

-- The entry that a wanted floor names, or the last one of its epoch when the epoch ended before it; nil when nobody knows the epoch.
-- The floor must be an entry that is or was there: readers of the window begin with its ID.
local function existing(keys, last, wanted)
  local epoch, n = split(wanted)
  local last_epoch, last_n = split(last)
  local ended = last_n
  if epoch ~= last_epoch then ended = tonumber(redis.call('HGET', keys[5], int(epoch)) or '-1') end
  if ended < 0 or epoch > last_epoch then return nil end
  return int(epoch) .. '-' .. int(math.min(n, ended))
end

-- floor: raises the logical floor, then removes a bounded number of the entries below it
--   ARGV    wanted floor (an ID), least ms since the last raise, newest entries to keep
--   returns {'OK', floor, '1' if it was raised, '1' if entries below it are left} | {'LOST', why}
local function floor(keys, args)
  local m = redis.call('HMGET', keys[4], 'last', 'floor', 'raised')
  if not m[1] then return { 'LOST', 'no meta' } end
  local now, current, raised = now_ms(), m[2], '0'
  local since = now - tonumber(m[3] or '0')
  local wanted = existing(keys, m[1], args[1])
  local highest = highest_floor(keys, m[1], tonumber(args[3]))
  if wanted and (not highest or below(highest, wanted)) then wanted = highest end
  -- A clock that was set back must not stop compaction for ever: a raise that lies in the future does not count.
  if wanted and below(current, wanted) and (since < 0 or since >= tonumber(args[2])) then
    redis.call('HSET', keys[4], 'floor', wanted, 'raised', int(now))
    current, raised = wanted, '1'
  end

  local first = redis.call('XRANGE', keys[3], '-', '+', 'COUNT', 1)[1]
  if not first then return { 'LOST', 'no log' } end
  if not below(first[1], current) then return { 'OK', current, raised, '0' } end
  local first_epoch, first_n = split(first[1])
  local floor_epoch, floor_n = split(current)
  local ended = first_epoch < floor_epoch and tonumber(redis.call('HGET', keys[5], int(first_epoch)) or '0') or floor_n
  local step, more = current, '0'
  if ended - first_n > TRIM_STEP then
    step, more = int(first_epoch) .. '-' .. int(first_n + TRIM_STEP), '1'
  elseif first_epoch < floor_epoch then
    step, more = int(first_epoch + 1) .. '-0', '1'
  end
  redis.call('XTRIM', keys[3], 'MINID', step)
  if more == '0' then
    local epochs = redis.call('HSCAN', keys[5], '0', 'COUNT', '100000')[2]
    for i = 1, #epochs, 2 do
      if tonumber(epochs[i]) < floor_epoch then redis.call('HDEL', keys[5], epochs[i]) end
    end
  end
  return { 'OK', current, raised, more }
end

-- init: the explicit first install of one resource
--   ARGV    a name for this process, schema, a marker that names this installation, a random step (at least 1)
--   returns {'OK', id} | {'EXISTS', init marker, schema} | {'HALF', key, key, …}: these are there although others are not
local function init(keys, args)
  local there = {}
  for i = 1, 5 do
    if redis.call('EXISTS', keys[i]) == 1 then there[#there + 1] = keys[i] end
  end
  if #there > 0 then
    local m = redis.call('HMGET', keys[4], 'init', 'schema', 'count')
    local whole = m[1] and redis.call('EXISTS', keys[3]) == 1 and redis.call('HLEN', keys[1]) == tonumber(m[3])
      and redis.call('HLEN', keys[2]) == tonumber(m[3])
    if whole then return { 'EXISTS', m[1], m[2] } end
    table.insert(there, 1, 'HALF')
    return there
  end
  if not SCHEMAS[args[2]] then return redis.error_reply('ERR unknown schema') end
  local epoch = int(next_epoch(args[2], args[4]))
  local id = redis.pcall('XADD', keys[3], epoch .. '-*', 'k', '', 't', '9', 'm', '-', 'p', '-', 'w', args[1])
  if type(id) == 'table' then return id end
  redis.call('HSET', keys[4], 'epoch', epoch, 'last', id, 'floor', id, 'schema', args[2], 'init', args[3],
    'count', '0', 'bytes', '0', 'raised', '0')
  left[args[3]] = id
  return { 'OK', id }
end

redis.register_function{ function_name = 'sl1_put', callback = put }
redis.register_function{ function_name = 'sl1_del', callback = del, flags = { 'allow-oom' } }
redis.register_function{ function_name = 'sl1_batch', callback = batch }
redis.register_function{ function_name = 'sl1_touch', callback = touch, flags = { 'allow-oom' } }
redis.register_function{ function_name = 'sl1_head', callback = head, flags = { 'no-writes' } }
redis.register_function{ function_name = 'sl1_range', callback = range, flags = { 'no-writes' } }
redis.register_function{ function_name = 'sl1_scan', callback = scan, flags = { 'no-writes' } }
redis.register_function{ function_name = 'sl1_digest', callback = digest, flags = { 'no-writes' } }
redis.register_function{ function_name = 'sl1_fence', callback = fence, flags = { 'allow-oom' } }
redis.register_function{ function_name = 'sl1_depose', callback = depose, flags = { 'no-writes' } }
redis.register_function{ function_name = 'sl1_floor', callback = floor, flags = { 'allow-oom' } }
redis.register_function{ function_name = 'sl1_init', callback = init }

-- Restoring a backup. `restore` fills the keys of a resource while its meta has no epoch, so every other function answers LOST.
-- `restored` then shows all objects at once, under a new marker, in a log that starts there: readers fill their memory anew.

local META = { 'epoch', 'last', 'floor', 'init', 'count', 'bytes', 'raised' }

-- restore
--   ARGV    name of the backup, schema of a new log, then per object: key, ID, uid, value
--   returns {'OK', highest epoch of this log so far, schema, now ms} | {'FULL', objects} (it has objects)
--           | {'OTHER', name} (it was not finished from another backup) | {'DONE'} (it was restored from this backup)
local function restore(keys, args)
  local m = redis.call('HMGET', keys[4], 'restoring', 'epoch', 'schema', 'restored')
  local refused = no_right(keys)
  if refused then return refused end
  if m[1] and m[1] ~= args[1] then return { 'OTHER', m[1] } end
  if not m[1] then
    if m[4] == args[1] then return { 'DONE' } end
    local objects = math.max(redis.call('HLEN', keys[1]), redis.call('HLEN', keys[2]))
    if objects > 0 then return { 'FULL', int(objects) } end
    if not m[3] then m[3] = args[2] end
    if not SCHEMAS[m[3]] then return redis.error_reply('ERR unknown schema') end
    redis.call('HSET', keys[4], 'restoring', args[1], 'schema', m[3], 'before', m[2] or '0')
    redis.call('HDEL', keys[4], unpack(META))
  end
  for i = 3, #args, 4 do
    redis.call('HSET', keys[2], args[i], args[i + 1] .. ' restore.' .. args[1] .. ' ' .. args[i + 2])
    redis.call('HSET', keys[1], args[i], args[i + 3])
  end
  return { 'OK', redis.call('HGET', keys[4], 'before'), m[3], int(now_ms()) }
end

-- restored
--   ARGV    name of the backup, a name for this process, a marker that names this installation, a random step (at least 1),
--           the highest epoch that this log may ever have had, objects, bytes
--   returns {'OK', id} | {'LOST', why}
local function restored(keys, args)
  local m = redis.call('HMGET', keys[4], 'restoring', 'schema')
  if m[1] ~= args[1] then return { 'LOST', 'it is not being restored from this backup' } end
  local objects = tonumber(args[6])
  if redis.call('HLEN', keys[1]) ~= objects or redis.call('HLEN', keys[2]) ~= objects then
    return { 'LOST', 'objects do not match the count' }
  end
  local epoch = int(next_epoch(m[2], args[4], tonumber(args[5])))
  local id = redis.pcall('XADD', keys[3], epoch .. '-*', 'k', '', 't', '9', 'm', '-', 'p', '-', 'w', args[2])
  if type(id) == 'table' then return id end
  redis.call('XTRIM', keys[3], 'MINID', id)
  local ended = redis.call('HSCAN', keys[5], '0', 'COUNT', '100000')[2]
  for i = 1, #ended, 2 do redis.call('HDEL', keys[5], ended[i]) end
  redis.call('HDEL', keys[4], 'restoring', 'before')
  redis.call('HSET', keys[4], 'epoch', epoch, 'last', id, 'floor', id, 'init', args[3],
    'count', args[6], 'bytes', args[7], 'raised', '0', 'restored', args[1])
  left[args[3]] = id
  return { 'OK', id }
end

redis.register_function{ function_name = 'sl1_restore', callback = restore }
redis.register_function{ function_name = 'sl1_restored', callback = restored }
