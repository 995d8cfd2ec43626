-- Before an acquire on a node of a quorum: as quorum_read.lua, and refuses while the clock of this server is known to have
-- been set. Leases may have ended early here, and clients that have not seen the clock before would not know (I1).
-- ARGV[#ARGV] marker
KEYS[count + 1], KEYS[count + 2] = 'tenure:quorum', 'tenure:quorum:clock'
local texts = redis.pcall('MGET', unpack(KEYS))
KEYS[count + 1], KEYS[count + 2] = nil, nil
if texts[count + 1] ~= ARGV[#ARGV] then
  return texts.err and texts or { err = 'QUARANTINED this server does not have the marker of its '
    .. 'quorum: it is new, or has lost its data. Clients admit it again after the quarantine' }
elseif texts[count + 2] then
  return { err = 'CLOCKSET the clock of this server was set: it grants no lock until every lease that may have '
    .. 'ended early would have ended' }
end
