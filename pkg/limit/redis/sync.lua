-- One exchange of a replica with the pool in KEYS[1]: it says what it holds and wants, may replace the rule of the
-- limit, and gets the slots that it may use until the lease expires.
--
-- Fields of the hash:
--   rule, version          the rule, and how often it was written
--   history, historyAt     the changes of the limit, and the version with which they were written last
--   limit                  the limit by the rule
--   born                   when the hash was made, ms
--   leases                 by replica: held, want, spare, inUse, peak, waiting, expires (ms)

local me, ttl, keep, clock = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local mine = {
  held = tonumber(ARGV[5]), want = tonumber(ARGV[6]), spare = tonumber(ARGV[7]),
  inUse = tonumber(ARGV[8]), peak = tonumber(ARGV[9]), waiting = tonumber(ARGV[10]),
}
local known, knownHistory, replicas = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local rule, ruleLimit, history = ARGV[14], tonumber(ARGV[15]), ARGV[16]

local now = tonumber(clock)
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end

local stored = redis.call('HMGET', KEYS[1], 'version', 'limit', 'historyAt', 'born', 'leases')
local version, limit, historyAt, born = tonumber(stored[1]), tonumber(stored[2]), tonumber(stored[3]), tonumber(stored[4])
local leases = stored[5] and cjson.decode(stored[5]) or {}

-- A clock that was set back, as that of another server after a failover, must not prolong leases.
for _, lease in pairs(leases) do
  lease.expires = math.min(lease.expires, now + ttl)
end
if born and born > now then
  born = now
  redis.call('HSET', KEYS[1], 'born', born)
end

-- A store without the pool, or with an older rule than a replica knows, has lost what it held. The replica brings it.
local lost = not version or version < known or not historyAt
if lost then
  if rule == '' or history == '' then -- The replica believes that the store has it, and is to send all of it.
    return false
  end
  version, born, leases = known, now, {}
  redis.call('HSET', KEYS[1], 'born', born)
end

local swapped = 0
if rule ~= '' and version == known then
  version, limit, swapped = version + 1, ruleLimit, 1
  redis.call('HSET', KEYS[1], 'rule', rule, 'version', version, 'limit', limit)
  if history ~= '' then
    historyAt = version
    redis.call('HSET', KEYS[1], 'history', history, 'historyAt', historyAt)
  end
end

for id, lease in pairs(leases) do
  if lease.expires <= now then
    leases[id] = nil
  end
end
leases[me] = mine
mine.expires = now + ttl

-- The order in which replicas get what cannot be divided. It turns, so that each has a turn.
local ids, turned = {}, {}
for id in pairs(leases) do
  ids[#ids + 1] = id
end
table.sort(ids)
for i = 1, #ids do
  turned[i] = ids[(i + math.floor(now / ttl)) % #ids + 1]
end

-- divide returns each replica's part of an amount: as much as it asks for in a field, and where that is too much in
-- sum, the same for all that ask for more.
local function divide(amount, field)
  local rising = {unpack(ids)}
  table.sort(rising, function(a, b) return leases[a][field] < leases[b][field] end)
  local part, open, level = {}, #rising, 0
  for _, id in ipairs(rising) do
    level = math.floor(amount / open)
    if leases[id][field] > level then
      break
    end
    part[id], amount, open = leases[id][field], amount - leases[id][field], open - 1
  end
  local rest = amount - level * open
  for _, id in ipairs(turned) do
    if not part[id] then
      part[id] = level + (rest > 0 and 1 or 0)
      rest = rest - 1
    end
  end
  return part, open == 0 and amount or 0
end

local wanted, left = divide(limit, 'want')
local grant = wanted[me] + divide(left, 'spare')[me]

-- Others keep what they hold until they return it.
local others = {held = 0, inUse = 0, peak = 0, waiting = 0}
for id, lease in pairs(leases) do
  if id ~= me then
    for field, sum in pairs(others) do
      others[field] = sum + lease[field]
    end
  end
end
grant = math.max(0, math.min(grant, limit - others.held))
-- Leases that the store has lost may still hold: until they have expired, no replica gets more than it has or its part.
if now < born + ttl then
  grant = math.min(grant, math.max(mine.held, math.floor(limit / replicas), 1))
end
mine.held = math.max(mine.held, grant)
if mine.held == 0 and mine.want == 0 then
  leases[me] = nil
end
redis.call('HSET', KEYS[1], 'leases', cjson.encode(leases))
if rule ~= '' or mine.held > 0 or mine.want > 0 then -- A list alone does not keep the pool.
  redis.call('PEXPIRE', KEYS[1], keep)
end

local newRule, newHistory = '', ''
if swapped == 0 and version ~= known then
  newRule = redis.call('HGET', KEYS[1], 'rule')
end
if historyAt ~= knownHistory and not (swapped == 1 and history ~= '') then
  newHistory = redis.call('HGET', KEYS[1], 'history')
end
return {now, version, historyAt, swapped, grant, others.inUse, others.peak, others.waiting, newRule, newHistory}
