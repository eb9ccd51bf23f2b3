-- Enters ARGV[4] and later into the register KEYS[1] for ARGV[1] ms, drops entries whose time is over, and returns how
-- many there are. ARGV[2] is how long the register is kept, ARGV[3] a clock of tests.
local now = tonumber(ARGV[3])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local ends = now + ARGV[1]
for i = 4, #ARGV do
  redis.call('ZADD', KEYS[1], ends, ARGV[i])
end
-- A clock that was set back must not prolong entries.
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', ends), '+inf')) do
  redis.call('ZADD', KEYS[1], ends, entry)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
