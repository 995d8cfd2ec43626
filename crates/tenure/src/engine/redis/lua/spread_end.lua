-- Instead of all that follows the plain case, in a call for several slots: what the plain case has left is not done, and
-- sent again in a call for its slot alone. "-ALONE": its lock is not plain; "-ELSEWHERE": it could not be read.
for _, i in ipairs(rest or {}) do
  results[i + 1] = elsewhere[i] and '-ELSEWHERE' or '-ALONE'
end
return table.concat(results, '\n')
